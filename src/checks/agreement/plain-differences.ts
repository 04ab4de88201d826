import { hashOf } from "../features/row-sample.js";
import { blockValues } from "../profiles/number-profile.js";
import { type BlockComparer, distanceOf, maskOf } from "./block-comparer.js";
import { numberAt } from "./prediction-pair.js";

/** Does the same in JavaScript: where there is no WebAssembly. */
export function plainComparer(): BlockComparer {
  const [one, other] = [new Float64Array(blockValues), new Float64Array(blockValues)];
  const differences = new Float64Array(blockValues);
  const [different, sampled] = [new Uint32Array(blockValues), new Uint32Array(blockValues)];
  return {
    one,
    other,
    compare(count, { rowNumbers, from, tolerance, least, level }) {
      const mask = maskOf(level);
      let [finite, beyond, differing, samples] = [0, 0, 0, 0];
      for (let index = 0; index < count; index += 1) {
        const distance = distanceOf(one[index] as number, other[index] as number);
        if (Number.isFinite((one[index] as number) - (other[index] as number))) {
          differences[finite] = distance;
          finite += 1;
          sampled[samples] = index;
          samples += (hashOf(numberAt(rowNumbers, from + index)) & mask) === 0 ? 1 : 0;
        }
        beyond += distance > tolerance ? 1 : 0;
        different[differing] = index;
        differing += distance > 0 && distance >= least ? 1 : 0;
      }
      return {
        finite: differences.subarray(0, finite),
        beyond,
        different: different.subarray(0, differing),
        sampled: sampled.subarray(0, samples),
      };
    },
  };
}
