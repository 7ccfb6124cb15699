/**
 * The stub of macOS's C++ library that the cross build links with. Zig would link its own copy into the shim; then an
 * exception thrown in libmlx (which uses the system's) would have another `std::exception` than the one that mlx-c
 * catches, and end the process. The stub may list only what macOS 14 has: what the MLX wheel, made for macOS 14,
 * imports itself, and the few below. A symbol outside of it is a link error that names it.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { readMachO } from "./mach-o.ts";

const INSTALL_NAME = "/usr/lib/libc++.1.dylib";

/** What mlx-c and our own code need beyond what libmlx imports: in libc++.1 since macOS 10.9 where nothing else is said. */
const FURTHER = [
  // std::string, std::locale, sized delete
  "__ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE21__grow_by_and_replaceEmmmmmmPKc",
  "__ZNSt3__16localeaSERKS0_",
  "__ZdlPvm",
  ...[..."ijlmxyfde"].map((type) => `__ZNSt3__19to_stringE${type}`),
  // aligned new and delete: since macOS 10.13
  ...["__Znwm", "__Znam", "__ZdlPv", "__ZdaPv", "__ZdlPvm", "__ZdaPvm"].map((name) => `${name}St11align_val_t`),
  // threads
  ...["4lock", "6unlock", "8try_lock"].map((name) => `__ZNSt3__15mutex${name}Ev`),
  ...["10notify_one", "10notify_all"].map((name) => `__ZNSt3__118condition_variable${name}Ev`),
  "__ZNSt3__118condition_variable4waitERNS_11unique_lockINS_5mutexEEE",
  ...["mutex", "condition_variable", "thread"].map((name) => `__ZNSt3__1${name.length}${name}D1Ev`),
  ...["4join", "6detach", "20hardware_concurrency"].map((name) => `__ZNSt3__16thread${name}Ev`),
  // bases of std::ostringstream
  "__ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEED0Ev",
  "__ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEED1Ev",
  "__ZNSt3__113basic_ostreamIcNS_11char_traitsIcEEED2Ev",
  "__ZTINSt3__113basic_ostreamIcNS_11char_traitsIcEEEE",
  "__ZTv0_n24_NSt3__113basic_ostreamIcNS_11char_traitsIcEEED0Ev",
  "__ZTv0_n24_NSt3__113basic_ostreamIcNS_11char_traitsIcEEED1Ev",
  "__ZTINSt3__115basic_streambufIcNS_11char_traitsIcEEEE",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE5imbueERKNS_6localeE",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE5uflowEv",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE6setbufEPcl",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE6xsgetnEPcl",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE7seekoffExNS_8ios_base7seekdirEj",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE7seekposENS_4fposI11__mbstate_tEEj",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE9pbackfailEi",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE9showmanycEv",
  "__ZNSt3__115basic_streambufIcNS_11char_traitsIcEEE9underflowEv",
  // std::to_chars of floating point, which std::format calls: since macOS 13.3
  ...["d", "e", "f"].flatMap((type) =>
    ["", "NS_12chars_formatE", "NS_12chars_formatEi"].map((how) => `__ZNSt3__18to_charsEPcS0_${type}${how}`),
  ),
];

/** Text-based stub (tapi-tbd version 4) for `wheel`, the unpacked MLX wheel for macOS. */
export function libcxxStub(wheel: string): string {
  const folder = join(wheel, "mlx/lib");
  const libraries = readdirSync(folder).filter((name) => name.endsWith(".dylib"));
  const imported = libraries.flatMap((name) => readMachO(readFileSync(join(folder, name))).imports);
  const names = new Set(FURTHER);
  for (const { name, from } of imported) if (from === INSTALL_NAME) names.add(name);
  const symbols = [...names].sort().map((name) => `'${name}'`);
  return `--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '${INSTALL_NAME}'
exports:
  - targets: [ arm64-macos ]
    symbols: [ ${symbols.join(",\n      ")} ]
...
`;
}
