import { type MaskSource, parseOutputReference } from "../../job/jobfile/model-spec.js";
import { isList, padExample, type ContractRequest, refuse } from "./bind-contract.js";
import { type ModelSignature, type TensorSignature, isTensorType } from "../../columns/tensor.js";
import type { SourceColumn } from "../../columns/types.js";
import { outputName } from "../../job/jobfile/values.js";
import { type FeatureOrder, batchDependence, tensorRemedy } from "./model-facts.js";
import { showTensor } from "./signatures.js";
import { isElementType } from "../../columns/values.js";

interface ProposedPadding {
  readonly column: string;
  readonly pad: { readonly to: number };
}

type ProposedSource = readonly string[] | ProposedPadding | MaskSource;

/** Where the model does not say how many tokens a row has; what models of texts often take. */
const defaultTokens = 128;

/** For a model that takes lists of tokens; undefined: it does not look like one, or an input has no column. */
function proposeTokens(
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

/** A model and the columns of a shard that it is to score. */
export type ProposalRequest = Pick<ContractRequest, "model" | "signature" | "traits" | "shard" | "columns"> & {
  /** Columns that are not features, if the caller names any. */
  readonly carry: readonly string[] | undefined;
  /** Columns that the names of the output's folders give, in lower case: its files should have no column of these names. */
  readonly ofFolders: ReadonlySet<string>;
  /** The order of the columns that the model takes; undefined: nothing says it. */
  readonly order: FeatureOrder | undefined;
};

/** How a spec could bind them: a beginning, to be read by its author. */
export interface Proposal {
  /** What fills each input; undefined: each takes the column of its name. */
  readonly inputs: Readonly<Record<string, ProposedSource>> | undefined;
  /** Input columns to carry through. */
  readonly columns: readonly string[];
  readonly outputs: Readonly<Record<string, string>>;
  /** What its author should know of outputs and columns that are left out. */
  readonly notes: readonly string[];
}

/** Proposes bindings for a model. @throws JobError CONTRACT if only its author knows which columns are features */
export function proposeBinding(given: ProposalRequest): Proposal {
  const isIndex = ({ name }: SourceColumn): boolean =>
    pandasIndex.test(name) && given.order?.names.includes(name) !== true && given.carry?.includes(name) !== true;
  const request = { ...given, columns: given.columns.filter((column) => !isIndex(column)) };
  const inputs = proposeInputs(request);
  const features = new Set(
    inputs === undefined ? request.signature.inputs.map(({ name }) => name) : Object.values(inputs).flatMap(columnsOf),
  );
  const { columns, note } = proposeColumns(request, features);
  const outputs = proposeOutputs(request, columns);
  return {
    inputs,
    columns,
    outputs: outputs.bound,
    notes: [
      ...orderNotes(inputs ?? {}, request),
      ...outputs.notes,
      note,
      ...given.columns.filter(isIndex).map(({ name }) => `${name} is left out: it is the index of a pandas DataFrame`),
      batchDependence(request.traits),
    ].filter((one) => one !== undefined),
  };
}

/** What pandas calls an index without a name when it writes a file. */
const pandasIndex = /^__index_level_\d+__$/;

/** Says where the order of an input's columns is from: in a wrong one, the model predicts something else and nothing fails. */
function orderNotes(inputs: NonNullable<Proposal["inputs"]>, { order }: ProposalRequest): string[] {
  return Object.entries(inputs).flatMap(([input, source]) =>
    !("length" in source) || source.length < 2
      ? []
      : order?.names.join("\n") === source.join("\n")
        ? [`the columns of input ${input} are in the order of ${order.from}`]
        : [
            `the columns of input ${input} are in the order of the file, since the model does not say its own. In another order the predictions are wrong without any error. Compare it with that of the training data (model.feature_names_in_) and correct model.inputs, or write the names into feature_names.json beside the model and make the spec anew`,
          ],
  );
}

function columnsOf(source: ProposedSource): readonly string[] {
  return "length" in source ? source : "column" in source ? [source.column] : [];
}

function proposeInputs(request: ProposalRequest): Proposal["inputs"] {
  const { signature, columns } = request;
  const [input, ...others] = signature.inputs;
  const tokens = proposeTokens(signature, columns);
  if (tokens !== undefined) {
    return tokens;
  }
  const byName = signature.inputs.every(({ name }) => columns.some((column) => column.name === name));
  if (input === undefined || byName) {
    return undefined; // binding reports what does not fit
  }
  if (others.length > 0 || input.dtype === "string") {
    const missing = signature.inputs.find(({ name }) => !columns.some((column) => column.name === name)) ?? input;
    const hint = "rename the columns, or write the spec by hand: model.inputs lists the columns of each input";
    const padding = `; where lists are padded: ${padExample(input, "LIST")}, and their mask is { mask_of: ${input.name} }`;
    throw refuse(
      asked(request),
      `no column is called like input \`${missing.name}\``,
      columns.some(isOfLists) ? hint + padding : hint,
    );
  }
  return { [input.name]: featuresFor(input, request) };
}

function asked(request: ProposalRequest): ContractRequest {
  const rest = { inputs: undefined, outputs: undefined, expressions: null, cast: "exact", missing: "bad_row" } as const;
  return { ...request, ...rest, passthrough: request.carry ?? [] };
}

/** undefined: the model says none, or knows no column by name, as where it was trained with a matrix. */
function orderedFeatures(input: TensorSignature, request: ProposalRequest): readonly string[] | undefined {
  const { order, columns } = request;
  const missing = order?.names.filter((name) => !columns.some((column) => column.name === name)) ?? [];
  if (order === undefined || missing.length === order.names.length) {
    return undefined;
  }
  const { names, from } = order;
  const [, width = 1] = input.shape;
  if (missing.length > 0 || (width !== null && names.length !== width)) {
    throw refuse(
      asked(request),
      missing.length > 0
        ? `${from} has ${missing.map((name) => `\`${name}\``).join(", ")}, which is no column`
        : `${from} has ${names.length} names, and input \`${input.name}\` is ${showTensor(input)}`,
      "correct the names, rename the columns, or write model.inputs by hand",
    );
  }
  return names;
}

/** A lone input without an order takes all numbers but those called like ids, or else like labels, too. */
function featuresFor(input: TensorSignature, request: ProposalRequest): readonly string[] {
  const ordered = orderedFeatures(input, request);
  if (ordered !== undefined) {
    return ordered;
  }
  const [, width = 1] = input.shape;
  const free = request.columns.filter(
    ({ name, partition }) => partition !== true && !(request.carry ?? []).includes(name),
  );
  const numbers = free.filter(isNumber).map(({ name }) => name);
  const choices = [
    numbers,
    numbers.filter((name) => !isIdName(name)),
    numbers.filter((name) => !isIdName(name) && !isLabelName(name)),
  ];
  const fitting =
    width === null ? choices.at(request.carry === undefined ? -1 : 0) : choices.find(({ length }) => length === width);
  if (fitting !== undefined && fitting.length > 0) {
    return fitting;
  }
  const lists = free.filter(({ type }) => typeof type === "object" && type.kind === "list");
  if (lists.length === 1 && lists[0] !== undefined && width !== 1) {
    return [lists[0].name];
  }
  throw refuse(
    asked(request),
    `input \`${input.name}\` is ${showTensor(input)}, and ${numbers.length} columns are numbers`,
    "say which columns are no features: --columns id,label; or write model.inputs by hand",
  );
}

function isNumber({ type }: SourceColumn): boolean {
  return typeof type === "string" ? isElementType(type) : type?.kind === "decimal";
}

function isIdName(name: string): boolean {
  const words = /^(id|uuid|guid|key|row|index|idx)$|_(id|key|uuid|guid|no|nr)$|^(id|row|key)_/i;
  return words.test(name) || /[a-z](Id|ID|Key)$/.test(name); // customerId, and not paid
}

function isLabelName(name: string): boolean {
  return /^(label|target|class|outcome|y)$/i.test(name);
}

/** More would only make the spec harder to read. */
const carriedColumns = 8;

function proposeColumns(
  { columns, carry, ofFolders }: ProposalRequest,
  features: ReadonlySet<string>,
): { readonly columns: readonly string[]; readonly note: string | undefined } {
  if (carry !== undefined) {
    return { columns: carry, note: undefined };
  }
  const others = columns.filter(({ name }) => !features.has(name) && !ofFolders.has(name.toLowerCase()));
  const fit = others.filter(
    ({ name, type }) => type !== undefined && typeof type === "string" && outputName.test(name),
  );
  const chosen = fit.map(({ name }) => name).slice(0, carriedColumns);
  const left = others.map(({ name }) => name).filter((name) => !chosen.includes(name));
  return {
    columns: chosen,
    note: left.length === 0 ? undefined : `not carried through: ${left.slice(0, 20).join(", ")}`,
  };
}

/** Elements of a tensor that get a column each; of wider ones a row is a list. */
const elementColumns = 10;

function proposeOutputs(
  request: ProposalRequest,
  carried: readonly string[],
): { readonly bound: Readonly<Record<string, string>>; readonly notes: readonly string[] } {
  const bound: Record<string, string> = {};
  const { traits } = request;
  const notes: string[] = [];
  const taken = new Set([...carried.map((name) => name.replaceAll(".", "_").toLowerCase()), ...request.ofFolders]);
  const add = (wanted: string, reference: string): void => {
    const name = freeName(wanted, taken);
    taken.add(name.toLowerCase());
    bound[name] = reference;
  };
  for (const output of request.signature.outputs) {
    const { name, dtype, shape } = output;
    if (dtype === undefined) {
      const type = traits.otherOutputs.find((other) => other.name === name)?.type;
      notes.push(
        `output ${name} is ${type === undefined ? "" : `${type}, `}no tensor, and left out: ${tensorRemedy(traits, name)}`,
      );
    } else if (
      !isTensorType(dtype) ||
      shape.length < 1 ||
      shape.length > 2 ||
      parseOutputReference(name)?.tensor !== name
    ) {
      notes.push(`output ${name} is ${showTensor(output)}, which is not supported`);
    } else {
      const [, width = 1] = shape;
      if (width !== null && width > 1 && width <= elementColumns) {
        Array.from({ length: width }, (_, element) => {
          add(`${name}_${element}`, `${name}[${element}]`);
        });
      } else {
        add(name, name);
      }
    }
  }
  if (Object.keys(bound).length === 0) {
    throw refuse(asked(request), "the model has no tensor output that could be scored", notes.join("; "));
  }
  return { bound, notes };
}

const longestName = 50;

function freeName(wanted: string, taken: ReadonlySet<string>): string {
  const plain = wanted
    .replaceAll(/[^A-Za-z0-9_]/g, "_")
    .replace(/^(?=\d|$)/, "_")
    .slice(0, longestName);
  const names = [
    plain,
    `${plain}_predicted`,
    ...Array.from({ length: taken.size + 1 }, (_, index) => `${plain}_${index + 2}`),
  ];
  return names.find((name) => outputName.test(name) && !taken.has(name.toLowerCase())) ?? plain;
}
