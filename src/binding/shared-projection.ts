import {
  boundColumns,
  type CastRules,
  type Contract,
  type DecodedBinding,
  decodedInputs,
  type Expressions,
  inputColumns,
  type ProjectedInput,
  type Projection,
} from "./contract.js";

/** What is read for two models that score the same rows. */
export interface SharedProjection {
  /** The champion's inputs and expressions come first, so that it finds them where they are without a challenger. */
  readonly projection: Projection;
  /** For each input of the challenger that is read from shards, its index among those of the projection. */
  readonly places: readonly number[];
  /** The same, each index once: what a thread sends that has scored rows with the champion. */
  readonly sent: readonly number[];
}

/** Projects the inputs of both models. Inputs that are read and cast in the same way are read once. */
export function shareProjection(champion: Contract, challenger: Contract): SharedProjection {
  const rules: CastRules = { cast: challenger.cast, missing: challenger.missing };
  const keys = decodedInputs(champion).map((binding) => readingOf(binding, champion));
  const added: ProjectedInput<DecodedBinding>[] = [];
  const places = decodedInputs(challenger).map((binding) => {
    const key = readingOf(binding, rules);
    const known = keys.indexOf(key);
    if (known >= 0) {
      return known;
    }
    added.push({ ...binding, rules });
    return keys.push(key) - 1;
  });
  const expressions = joinExpressions(champion.expressions, challenger.expressions);
  const projection = { ...champion, inputs: [...champion.inputs, ...added], expressions };
  return { projection, places, sent: [...new Set(places)] };
}

/** A text that is the same for two inputs if the same is read for them. */
function readingOf(binding: DecodedBinding, { cast, missing }: CastRules): string {
  const { kind } = binding;
  const numbers = kind === "text" ? [] : [binding.dtype, cast, missing];
  return JSON.stringify([kind, inputColumns(binding), ...numbers, kind === "list" ? binding.width : null]);
}

function joinExpressions(one: Expressions | null, other: Expressions | null): Expressions | null {
  if (one === null || other === null) {
    return one ?? other;
  }
  const names = new Set(one.list.map(({ kind, name }) => `${kind} ${name}`));
  const folders = new Set(one.folders.map(({ name }) => name));
  return {
    list: [...one.list, ...other.list.filter(({ kind, name }) => !names.has(`${kind} ${name}`))],
    folders: [...one.folders, ...other.folders.filter(({ name }) => !folders.has(name))],
  };
}

/** The contract with the row filter and the computed columns that it uses: others are another model's. */
export function withUsedExpressions(contract: Contract): Contract {
  const { expressions } = contract;
  if (expressions === null) {
    return contract;
  }
  const used = computedColumns(contract);
  const list = expressions.list.filter(({ kind, name }) => kind === "where" || used.has(name));
  const sources = new Set(list.flatMap(({ uses }) => uses));
  const folders = expressions.folders.filter(({ name }) => sources.has(name));
  return { ...contract, expressions: list.length === 0 ? null : { list, folders } };
}

/** The names of the computed columns that a contract uses. */
export function computedColumns(contract: Pick<Contract, "inputs" | "passthrough">): ReadonlySet<string> {
  return new Set(boundColumns(contract).flatMap(({ path, computed }) => (computed === true ? [path[0] ?? ""] : [])));
}
