/** The hub's progress of a download as the protocol's progress of a load. */
import type { DownloadProgress } from "../hub/progress.ts";
import type { LoadProgress } from "./protocol.ts";

export function downloadText(progress: DownloadProgress): string {
  return `downloading ${progress.repo} (${progress.files_done} of ${progress.files_total} files)`;
}

export function downloadNumbers(progress: DownloadProgress): Partial<LoadProgress> {
  const { bytes_done, bytes_total, bytes_per_s, repo, file } = progress;
  return {
    fraction: bytes_total > 0 ? bytes_done / bytes_total : null,
    bytesDone: bytes_done,
    bytesTotal: bytes_total,
    bytesPerSecond: bytes_per_s,
    download: {
      repo,
      file,
      filesDone: progress.files_done,
      filesTotal: progress.files_total,
      etaSeconds: progress.eta_s,
      resumedBytes: progress.resumed_bytes,
    },
  };
}
