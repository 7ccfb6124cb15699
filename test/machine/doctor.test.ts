/** The examination of a machine: what is a problem, what is only a note, and how the system's own words are read. */
import { afterAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chipOf } from "../../src/machine/chip.ts";
import { type BackendProbe, type Examination, examineMachine } from "../../src/machine/doctor.ts";
import { readSystem, type SystemReader, THIS_MACHINE } from "../../src/machine/system.ts";

const folder = mkdtempSync(join(tmpdir(), "doctor-"));
afterAll(() => rmSync(folder, { recursive: true }));

const MAC: SystemReader = {
  platform: "darwin",
  arch: "arm64",
  totalBytes: 64 * 2 ** 30,
  file: () => null,
  command: (words) =>
    ({
      "sw_vers -productVersion": "15.5\n",
      "sysctl -n machdep.cpu.brand_string": "Apple M3 Max\n",
      "ioreg -rc AGXAccelerator -d 1": '  "gpu-core-count" = 30\n',
      "sysctl -n vm.swapusage": "total = 2048.00M  used = 1024.50M  free = 1023.50M  (encrypted)\n",
      "sysctl -n kern.memorystatus_level": "41\n",
      "sysctl -n kern.memorystatus_vm_pressure_level": "2\n",
      "sysctl -n iogpu.wired_limit_mb": "0\n",
    })[words.join(" ")] ?? null,
};

const LINUX_FILES: Readonly<Record<string, string>> = {
  "/etc/os-release": 'NAME="Some"\nPRETTY_NAME="Some Linux 12"\n',
  "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU 9000\n",
  "/proc/meminfo": "MemTotal:  8000000 kB\nMemAvailable:  2000000 kB\nSwapTotal: 1000 kB\nSwapFree: 400 kB\n",
  "/proc/pressure/memory": "some avg10=22.00 avg60=0 avg300=0 total=1\nfull avg10=3.00 avg60=0 avg300=0 total=1\n",
};
const LINUX: SystemReader = {
  platform: "linux",
  arch: "x64",
  totalBytes: 1,
  file: (path) => LINUX_FILES[path] ?? null,
  command: () => null,
};

const METAL: BackendProbe = { ok: true, facts: { device: "metal", mlx: "0.32.2", shim: 1, isa: "neon", threads: 12 } };
const CPU: BackendProbe = { ok: true, facts: { device: "cpu", mlx: "0.32.2", shim: 1, isa: "avx2", threads: 1 } };

function examination(reader: SystemReader, probe: BackendProbe, cacheFolder = folder): Examination {
  return {
    ...{ version: "9.9.9", pinned: { mlx: "0.32.2", mlxC: "0.7.0" }, cacheFolder },
    ...{ probe: () => Promise.resolve(probe), system: readSystem(reader) },
  };
}

test("a good Mac: ok, with the wired limit as a hint", async () => {
  const report = await examineMachine(examination(MAC, METAL));
  expect(report).toMatchObject({ ok: true, problems: [] });
  expect(report.environment).toMatchObject({
    ...{ apple_silicon: true, os_version: "15.5", backend: "metal", metal_ok: true, metal_error: null },
    ...{ device: "metal", native: { libmlx: "0.32.2", mlxc: "0.7.0", shim: 1 }, ram_gb: 68.7 },
    ...{ iogpu_wired_limit_mb: 0, wired_limit_hint: "sudo sysctl iogpu.wired_limit_mb=49152" },
    chip: { name: "Apple M3 Max", gpu_cores: 30, bandwidth_gb_s: 307, bandwidth_source: "table-binned" },
    memory: { free_percent: 41, pressure: "warn", swap_used_bytes: 1074266112 },
  });
  expect(report.notes.join("\n")).toContain("memory pressure is warn");
});

test("a limit that is set needs no hint", async () => {
  const set: SystemReader = {
    ...MAC,
    command: (words) => (words.includes("iogpu.wired_limit_mb") ? "40000\n" : MAC.command(words)),
  };
  const { environment } = await examineMachine(examination(set, METAL));
  expect(environment).toMatchObject({ iogpu_wired_limit_mb: 40000, wired_limit_hint: null });
});

test("a Linux CPU is no problem, and what is little is noted", async () => {
  const report = await examineMachine(examination(LINUX, CPU));
  expect(report.ok).toBeTrue();
  expect(report.environment).toMatchObject({
    ...{ platform: "linux", os_version: "Some Linux 12", apple_silicon: false, backend: "cpu", metal_ok: false },
    ...{ metal_error: null, device: "cpu (avx2, 1 threads)", wired_limit_hint: null },
    chip: { name: "Fast CPU 9000", bandwidth_gb_s: null },
    memory: { free_percent: 25, pressure: "warn", swap_used_bytes: 614400, total_bytes: 8192000000 },
  });
  expect(report.notes.join("\n")).toContain("CPU backend");
  expect(report.notes.join("\n")).toContain("8.2 GB of memory");
});

describe("problems", () => {
  test("libraries that cannot be loaded", async () => {
    const probe: BackendProbe = { ok: false, error: "cannot load libshim.so: version `GLIBCXX_3.4.30' not found" };
    const report = await examineMachine(examination(LINUX, probe));
    expect(report.ok).toBeFalse();
    expect(report.problems).toEqual([
      "no usable backend: cannot load libshim.so: version `GLIBCXX_3.4.30' not found; the system's C or C++ library is too old",
    ]);
    expect(report.environment).toMatchObject({ backend: null, device: null, native: { libmlx: null } });
  });

  test("another MLX than this build's", async () => {
    const other: BackendProbe = { ok: true, facts: { device: "cpu", mlx: "0.31.0", shim: 1, isa: "avx2", threads: 2 } };
    const report = await examineMachine(examination(LINUX, other));
    expect(report.problems).toEqual([expect.stringContaining("MLX 0.31.0, this build needs 0.32.2")]);
  });

  test("a cache folder below a file", async () => {
    const file = join(folder, "file");
    writeFileSync(file, "");
    const report = await examineMachine(examination(LINUX, CPU, join(file, "cache")));
    expect(report.problems).toEqual([expect.stringContaining(`cache folder ${file}/cache is not writable`)]);
  });

  test("a cache folder that does not exist yet is none", async () => {
    expect((await examineMachine(examination(LINUX, CPU, join(folder, "a/b/c")))).ok).toBeTrue();
  });
});

test.each([
  ["Apple M1", null, 68, "table"],
  ["Apple M2 Pro", 19, 200, "table"],
  ["Apple M3 Max", null, 410, "table-binned"],
  ["Apple M4 Max", 32, 410, "table-binned"],
  ["Apple M4 Max", 40, 546, "table-binned"],
  ["Apple M3 Ultra", 80, 819, "table"],
  ["Apple M9", 10, null, "unknown"],
  ["AMD EPYC", null, null, "unknown"],
])("bandwidth of %s with %p GPU cores", (name, cores, gbS, source) => {
  expect(chipOf(name, cores)).toMatchObject({ bandwidthGbS: gbS, bandwidthSource: source });
});

test("this machine answers, whatever it is", () => {
  const { memory, chip, osVersion } = readSystem(THIS_MACHINE);
  expect(memory.totalBytes).toBeGreaterThan(0);
  expect(chip.name).not.toBe("");
  expect(osVersion).not.toBe("");
});
