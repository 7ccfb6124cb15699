/**
 * Reads what the macOS build and its test must know of a 64-bit Mach-O file: load commands, symbols with the library
 * that each comes from, and the code signature. Formats: Apple's mach-o/loader.h, mach-o/nlist.h and cs_blobs.h.
 */

const MAGIC_64 = 0xfeedfacf;
const CPU_ARM64 = 0x0100000c;
const COMMAND = {
  symtab: 0x2,
  loadDylib: 0xc,
  idDylib: 0xd,
  segment64: 0x19,
  codeSignature: 0x1d,
  loadWeakDylib: 0x80000018,
  rpath: 0x8000001c,
  buildVersion: 0x32,
} as const;

export interface Import {
  readonly name: string;
  /** Install name of the library that must have it; null when the name is looked up everywhere. */
  readonly from: string | null;
}

export interface MachO {
  readonly kind: "executable" | "dylib" | "other";
  readonly installName: string | null;
  /** Install names of what the loader must find, in load order. */
  readonly dependencies: readonly string[];
  readonly rpaths: readonly string[];
  /** "14.0", or null when the file does not say. */
  readonly minimumMacos: string | null;
  readonly imports: readonly Import[];
  readonly exports: ReadonlySet<string>;
  readonly signature: { readonly offset: number; readonly size: number } | null;
}

function text(bytes: Uint8Array, start: number): string {
  return new TextDecoder().decode(bytes.subarray(start, bytes.indexOf(0, start)));
}

/** @throws Error when `bytes` is no 64-bit arm64 Mach-O file */
export function readMachO(bytes: Uint8Array): MachO {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const u32 = (at: number) => view.getUint32(at, true);
  if (u32(0) !== MAGIC_64) throw new Error(`no 64-bit Mach-O file: magic ${u32(0).toString(16)}`);
  if (u32(4) !== CPU_ARM64) throw new Error(`not for arm64: cpu type ${u32(4).toString(16)}`);
  const kinds: Readonly<Record<number, MachO["kind"]>> = { 2: "executable", 6: "dylib" };
  const dependencies: string[] = [];
  const rpaths: string[] = [];
  let installName: string | null = null;
  let minimumMacos: string | null = null;
  let signature: MachO["signature"] = null;
  let symtab = 0;
  for (let i = 0, at = 32; i < u32(16); i += 1, at += u32(at + 4)) {
    const command = u32(at);
    if (command === COMMAND.loadDylib || command === COMMAND.loadWeakDylib) {
      dependencies.push(text(bytes, at + u32(at + 8)));
    } else if (command === COMMAND.idDylib) installName = text(bytes, at + u32(at + 8));
    else if (command === COMMAND.rpath) rpaths.push(text(bytes, at + u32(at + 8)));
    else if (command === COMMAND.buildVersion) minimumMacos = `${u32(at + 12) >> 16}.${(u32(at + 12) >> 8) & 0xff}`;
    else if (command === COMMAND.codeSignature) signature = { offset: u32(at + 8), size: u32(at + 12) };
    else if (command === COMMAND.symtab) symtab = at;
  }
  const imports: Import[] = [];
  const exports = new Set<string>();
  if (symtab !== 0) {
    const strings = u32(symtab + 16);
    for (let i = 0, at = u32(symtab + 8); i < u32(symtab + 12); i += 1, at += 16) {
      const type = bytes[at + 4] ?? 0;
      const isExternal = (type & 0xe1) === 1; // N_EXT, no debugging entry
      if (!isExternal || (type & 0x10) !== 0) continue; // N_PEXT: private to its library
      const name = text(bytes, strings + u32(at));
      if ((type & 0x0e) !== 0) exports.add(name);
      else imports.push({ name, from: dependencies[(view.getUint16(at + 6, true) >> 8) - 1] ?? null });
    }
  }
  return {
    kind: kinds[u32(12)] ?? "other",
    installName,
    dependencies,
    rpaths,
    minimumMacos,
    imports,
    exports,
    signature,
  };
}

export interface Signature {
  readonly identifier: string;
  /** Made without a certificate: enough for arm64 macOS to run it. */
  readonly adHoc: boolean;
  /** Under the hardened runtime a program needs entitlements to compile code and to load others' libraries. */
  readonly hardened: boolean;
  /** Pages whose hash is not the one that was signed. */
  readonly wrongPages: number;
  readonly pages: number;
}

const SUPER_BLOB = 0xfade0cc0;
const CODE_DIRECTORY = 0xfade0c02;

/**
 * Recomputes the page hashes of the first code directory, as the kernel does when a page is read.
 * @throws Error when there is no signature, or none with SHA-256
 */
export function checkSignature(bytes: Uint8Array): Signature {
  const place = readMachO(bytes).signature;
  if (place === null) throw new Error("no code signature");
  const view = new DataView(bytes.buffer, bytes.byteOffset + place.offset, place.size);
  if (view.getUint32(0) !== SUPER_BLOB) throw new Error("the code signature is no blob of blobs");
  const blobs = Array.from({ length: view.getUint32(8) }, (_, i) => view.getUint32(12 + i * 8 + 4));
  const directory = blobs.find((at) => view.getUint32(at) === CODE_DIRECTORY && view.getUint8(at + 37) === 2);
  if (directory === undefined) throw new Error("the code signature has no SHA-256 code directory");
  const field = (at: number) => view.getUint32(directory + at);
  const flags = field(12);
  const hashes = field(16);
  const pages = field(28);
  const codeLimit = field(32) === 0 ? Number(view.getBigUint64(directory + 56)) : field(32);
  const pageSize = 2 ** view.getUint8(directory + 39);
  const signed = bytes.subarray(place.offset + directory + hashes);
  let wrongPages = 0;
  for (let page = 0; page < pages; page += 1) {
    const code = bytes.subarray(page * pageSize, Math.min((page + 1) * pageSize, codeLimit));
    const hash = new Bun.CryptoHasher("sha256").update(code).digest();
    if (!hash.equals(signed.subarray(page * 32, (page + 1) * 32))) wrongPages += 1;
  }
  return {
    identifier: text(bytes, place.offset + directory + field(20)),
    adHoc: (flags & 0x2) !== 0,
    hardened: (flags & 0x10000) !== 0,
    wrongPages,
    pages,
  };
}
