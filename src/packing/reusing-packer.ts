import { createPacker, type Packer, type PackerOptions } from "./packer.js";
import type { RowReuse } from "./row-reuse.js";
import { createStage } from "./stage.js";

export interface ReusingPackerOptions extends PackerOptions {
  /** The piece of a span that is packed: it decides which rows take stored predictions. */
  readonly reuse: () => RowReuse;
}

/**
 * Packs each row that takes no stored prediction. All rows are packed once to be hashed as the model would see them, and
 * those that are scored a second time, for the model. Batches number their rows as `RowReuse` does.
 */
export function createReusingPacker({ reuse, onFault, ...options }: ReusingPackerOptions): Packer {
  const packer = createPacker({ ...options, onFault() {} }); // the stage has reported them
  const stage = createStage(options.contract, onFault);
  return {
    ...packer,
    *push(batch, { from, to, row }) {
      const piece = reuse();
      for (let at = from; at < to; at += stage.rows) {
        const range = { from: at, to: Math.min(to, at + stage.rows), row: row + (at - from) };
        const [firstRow, firstScored] = [piece.rowCount, piece.scoredCount];
        stage.pack(batch, range, (tensors) => {
          piece.take(batch, tensors, range);
        });
        const shift = range.from - firstRow;
        for (let index = firstScored; index < piece.scoredCount; ) {
          const start = piece.scoredAt(index);
          let count = 1;
          while (index + count < piece.scoredCount && piece.scoredAt(index + count) === start + count) {
            count += 1;
          }
          yield* packer.push(batch, { from: start + shift, to: start + count + shift, row: piece.rowStart + index });
          index += count;
        }
      }
    },
  };
}
