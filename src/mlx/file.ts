/** Reading one tensor of a checked file straight into an array. */
import { adopt, type Dtype, dtypeCode, type MlxArray } from "./array.ts";
import { MlxError } from "./error.ts";
import { lastError, native } from "./native.ts";

const shapeCells = new Int32Array(8);
const resultCell = new Uint32Array(2);

/**
 * The tensor at `offset` bytes of the file. It is read, not mapped: a file that shrank since it was checked is an error.
 * @throws MlxError when the file cannot be read or ends early, or the shape cannot be that of a file.
 */
export function readTensor(path: string, offset: number, shape: readonly number[], dtype: Dtype): MlxArray {
  // The native side multiplies the lengths without a check, and takes offsets as unsigned.
  const sane = [offset, ...shape, shape.reduce((product, length) => product * length, 8)];
  if (shape.length > shapeCells.length || !sane.every((n) => Number.isSafeInteger(n) && n >= 0)) {
    throw new MlxError("read_tensor", `shape [${shape}] at offset ${offset} is not that of a tensor in a file`);
  }
  shapeCells.set(shape);
  resultCell.fill(0);
  const cPath = new TextEncoder().encode(`${path}\0`);
  const status = native.dspark_array_from_file(resultCell, cPath, offset, shapeCells, shape.length, dtypeCode(dtype));
  if (status !== 0) throw lastError("read_tensor");
  return adopt((resultCell[1] as number) * 4294967296 + (resultCell[0] as number), "read_tensor");
}
