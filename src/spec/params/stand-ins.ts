import { isDateText } from "../../plan/identity.js";
import type { Problem } from "../problems.js";
import { missingProblem, type ParamType } from "./param-types.js";

/**
 * Which params get a placeholder of their type if they have no value, so that a command finds runs with any value.
 * `dates`: only params of type date, in which the runs of one series may differ.
 */
export type StandIns = "all" | "dates";

/** A date that no job runs for. Dates are computed from it in both directions. */
const someDate = "1970-01-01";

/** The value of a param that has none, or a wrong one. What is wrong with the param is reported, and once is enough. */
export const valueInRefusedSpec = someDate;

/** Keeps account of stand-ins and of what is made from them. */
export interface StandInAccount {
  /** The value of a param without one; undefined: none may stand in, and the command needs it. */
  readonly take: (name: string, type: ParamType) => string | undefined;
  /** Takes note of the param `name` at a path. Problems: the runs cannot be found without its value. */
  readonly use: (name: string, path: readonly (string | number)[]) => Problem[];
  /** Whether the runs of a param's series can be told with this value of it. */
  readonly check: (name: string, text: string) => Problem[];
}

/** Opens an account. `standIns`: undefined: no value may stand in for another one. */
export function openStandIns(standIns: StandIns | undefined): StandInAccount {
  /** By name of a param that is a stand-in or made from one: the param that has no value. */
  const known = new Map<string, { readonly name: string; readonly type: ParamType }>();
  const needed = new Set<string>();
  const need = ({ name, type }: { readonly name: string; readonly type: ParamType }, made: string): Problem[] => {
    if (needed.has(name)) {
      return [];
    }
    needed.add(name);
    const { path, text } = missingProblem(name, type);
    return [{ path, text: text.replace("no default;", `no default, and ${made} is made from it;`) }];
  };
  return {
    take(name, type) {
      if (standIns === undefined || (standIns === "dates" && type.type !== "date")) {
        return undefined;
      }
      known.set(name, { name, type });
      return type.type === "date" ? someDate : type.type === "enum" ? type.values[0] : "1";
    },
    use(name, path) {
      const missing = known.get(name);
      if (missing === undefined) {
        return [];
      }
      const [section, param] = path;
      if (section === "params" && param !== undefined) {
        known.set(String(param), missing);
      }
      return namesRuns(path) ? need(missing, path.join(".")) : [];
    },
    check(name, text) {
      const missing = known.get(name);
      return missing === undefined || standIns !== "dates" || isDateText(text) ? [] : need(missing, `params.${name}`);
    },
  };
}

/** Whether a key decides where the runs of a job are. Folders are found with any params. */
function namesRuns(path: readonly (string | number)[]): boolean {
  const [section, ...rest] = path;
  return section === "name" || (section === "output" && rest.join(".") !== "parquet.path");
}
