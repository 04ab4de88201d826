import { decodeTexts, fromFloat16Bits, type NamedTensor, type Tensor } from "../../columnar/tensor.js";
import type { Sha256 } from "../../plan/identity.js";
import type { ProbedOutputs } from "../../plan/plan.js";

/** A call of the model with rows that it scored. */
export interface ProbedCall {
  readonly inputs: readonly NamedTensor[];
  /** In the order of the names that were asked for. */
  readonly outputs: readonly Tensor[];
}

/** Copies tensors whose memory is used again. */
export function copyInputs(inputs: readonly NamedTensor[]): NamedTensor[] {
  return inputs.map((input) => (input.dtype === "string" ? input : { ...input, data: input.data.slice() }));
}

/** Elements of a row that are stored; embeddings have more. */
const mostElements = 64;
/** Hex digits of a text's digest. */
const textDigits = 16;
const absoluteTolerance = 1e-5;
const relativeTolerance = 1e-3;

/** Hex digest of the inputs of calls. */
export function inputsDigest(calls: readonly ProbedCall[], sha256: Sha256): string {
  const texts = calls.map(({ inputs }) =>
    inputs.map((input) => {
      const values = input.dtype === "string" ? JSON.stringify(decodeTexts(input.data)) : input.data.join(",");
      return `${input.name} ${input.dtype} [${input.dims.join(",")}] ${values}`;
    }),
  );
  return sha256(JSON.stringify(texts));
}

/** Predictions of calls by output, as a plan stores them: of at most `rows` rows. Texts are digests. */
export function probedOutputs(
  names: readonly string[],
  calls: readonly ProbedCall[],
  { rows, sha256 }: { readonly rows: number; readonly sha256: Sha256 },
): ProbedOutputs {
  const byName = names.map((name, index): [string, (number | string)[][]] => {
    const all = calls.flatMap(({ outputs }) => {
      const tensor = outputs[index];
      return tensor === undefined ? [] : rowsOf(tensor, sha256);
    });
    return [name, all.slice(0, rows)];
  });
  return Object.fromEntries(byName);
}

function rowsOf(tensor: Tensor, sha256: Sha256): (number | string)[][] {
  const values = valuesOf(tensor, sha256);
  const [count = 0] = tensor.dims;
  const width = count === 0 ? 0 : values.length / count;
  return Array.from({ length: count }, (_, row) =>
    values.slice(row * width, row * width + Math.min(width, mostElements)),
  );
}

function valuesOf(tensor: Tensor, sha256: Sha256): (number | string)[] {
  if (tensor.dtype === "string") {
    return decodeTexts(tensor.data).map((text) => sha256(text).slice(0, textDigits));
  }
  const numbers: ArrayLike<number | bigint> = tensor.data;
  return Array.from(numbers, (value) => {
    const number = tensor.dtype === "float16" ? fromFloat16Bits(Number(value)) : value;
    return typeof number === "number" && Number.isFinite(number) ? number : String(number);
  });
}

/**
 * The first prediction that differs, as a message tells it; undefined if all are the same. Numbers may differ by
 * 1e-5 + 1e-3 of their size, as those of another GPU do; integers, texts, NaN and infinities may not.
 */
export function findChange(planned: ProbedOutputs, found: ProbedOutputs): string | undefined {
  for (const [name, rows] of Object.entries(planned)) {
    const others = found[name] ?? [];
    for (const [row, values] of rows.entries()) {
      const other = others[row] ?? [];
      const at = values.findIndex((value, index) => !isSame(value, other[index]));
      if (at >= 0 || values.length !== other.length) {
        const shown =
          at < 0
            ? `${other.length} values, planned ${values.length}`
            : `${show(other[at])}, planned ${show(values[at])}`;
        return `row ${row} of those compared: \`${name}\` is ${shown}`;
      }
    }
  }
  return undefined;
}

function isSame(planned: number | string, found: number | string | undefined): boolean {
  if (typeof planned !== "number" || typeof found !== "number") {
    return planned === found;
  }
  const areIntegers = Number.isInteger(planned) && Number.isInteger(found);
  const allowed = areIntegers ? 0 : absoluteTolerance + relativeTolerance * Math.abs(planned);
  return Math.abs(planned - found) <= allowed;
}

function show(value: number | string | undefined): string {
  return typeof value === "string" && value.length === textDigits ? `a text with digest ${value}` : String(value);
}
