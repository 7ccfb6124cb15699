/** Stub */
export function preparedFolder(source: string, _cacheRoot: string | null): string {
  return source;
}
