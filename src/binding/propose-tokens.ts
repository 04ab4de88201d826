import type { MaskSource } from "../spec/model-spec.js";
import { isList } from "./bind-padded.js";
import type { ModelSignature, TensorSignature } from "../columnar/tensor.js";
import type { SourceColumn } from "../columnar/types.js";

/** Lists of one input that are filled up, as a spec writes it. */
interface ProposedPadding {
  readonly column: string;
  readonly pad: { readonly to: number };
}

export type ProposedSource = readonly string[] | ProposedPadding | MaskSource;

/** Where the model does not say how many tokens a row has; what models of texts often take. */
const defaultTokens = 128;

/**
 * Sources for a model that takes lists of tokens: lists are padded, and a mask is made of them where there is no column
 * for it. undefined: it does not look like one, or an input has no column.
 */
export function proposeTokens(
  { inputs }: Pick<ModelSignature, "inputs">,
  columns: readonly SourceColumn[],
): Readonly<Record<string, ProposedSource>> | undefined {
  const named = (name: string): SourceColumn | undefined => columns.find((column) => column.name === name);
  const missing = inputs.filter(({ name }) => named(name) === undefined);
  const masks = missing.filter((input) => isWide(input) && /mask/i.test(input.name));
  const tokens = missing.filter((input) => !masks.includes(input));
  const free = columns.filter((column) => isOfLists(column) && inputs.every(({ name }) => name !== column.name));
  const [only] = tokens;
  const columnFor = ({ name }: TensorSignature): string | undefined =>
    named(name)?.name ?? (tokens.length === 1 && only?.name === name && free.length === 1 ? free[0]?.name : undefined);
  const isPadded = (input: TensorSignature): boolean =>
    areTokens(input) && !masks.includes(input) && isOfLists(named(columnFor(input) ?? ""));
  const padded = inputs.filter((input) => isWide(input) && isPadded(input));
  const [first] = padded;
  const isNeeded = masks.length > 0 || padded.some(({ shape }) => shape[1] === null);
  if (first === undefined || !isNeeded || tokens.some((input) => columnFor(input) === undefined)) {
    return undefined;
  }
  const masked = padded.find(({ name }) => /ids$/i.test(name) && !/type/i.test(name)) ?? first;
  return Object.fromEntries(
    inputs.map((input): [string, ProposedSource] => {
      const column = columnFor(input) ?? "";
      const to = input.shape[1] ?? masked.shape[1] ?? defaultTokens;
      return [
        input.name,
        masks.includes(input) ? { mask_of: masked.name } : padded.includes(input) ? { column, pad: { to } } : [column],
      ];
    }),
  );
}

function isOfLists(column: SourceColumn | undefined): boolean {
  return column?.type !== undefined && isList(column.type);
}

/** Other lists have a length that means something, such as an embedding's. */
function areTokens({ dtype }: TensorSignature): boolean {
  return dtype === "int64" || dtype === "int32";
}

function isWide({ dtype, shape }: TensorSignature): boolean {
  return dtype !== undefined && dtype !== "string" && shape.length === 2 && shape[1] !== 1;
}
