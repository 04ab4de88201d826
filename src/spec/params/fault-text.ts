import type { Problem } from "../problems.js";
import { assertNever } from "../../util/errors.js";
import { hideCredentials, isSecretKey } from "../secrets.js";
import { filledLimit, type TemplateFault } from "../template.js";

type Path = readonly (string | number)[];

/** SQL is kept in the plan, and environment variables may be secrets: only params are filled in there. */
export function isExpression([section, key]: Path): boolean {
  return section === "input" && (key === "columns" || key === "where");
}

/** Says what is wrong with a `${…}` at a path. `declared`: the params of the spec. */
export function faultText(fault: TemplateFault, path: Path, declared: readonly string[]): string {
  switch (fault.kind) {
    case "quoted":
      return `found ${fault.found} inside quotes; write it without quotes, because its value is inserted as a quoted text`;
    case "commented":
      return `found ${fault.found} in a comment; remove it from the comment`;
    case "attached":
      return `found ${fault.found} right next to a literal or a word; its value is inserted as a quoted text, so put a blank or an operator between them`;
    case "malformed":
      return `found ${isSecretKey(path) ? "${ and no name after it" : hideCredentials(fault.found)}, expected \${name} or \${name:-default}, or for a date \${name - 7d} with blanks around the sign; a literal \${ is written $\${`;
    case "climbs":
      return `the value of \${${fault.name}} contains .., which would lead out of the folder that the path names`;
    case "no date":
      return `\${${fault.found}} needs a date such as 2026-11-23, but the value of ${fault.name} is not a date`;
    case "out of range":
      return `\${${fault.found}} is not in the years 1 to 9999`;
    case "long":
      return `it has more than ${filledLimit} characters when it is filled in`;
    case "unset":
      return unsetText(fault.name, declared, isExpression(path));
    default:
      return assertNever(fault);
  }
}

/**
 * What is wrong with a key whose value is empty because environment variables are. A variable that a deployment forgot is
 * often empty, not unset, and an empty URL of Postgres would lead to the database of libpq's variables. Other keys refuse
 * an empty text, or do nothing.
 */
export function emptyProblems(path: Path, variables: readonly string[]): Problem[] {
  if (variables.length === 0 || path.slice(-3).join(".") !== "output.postgres.url") {
    return [];
  }
  const made = variables.map((name) => `\${${name}}`).join(" and ");
  const found = `found an empty text, made from ${made}`;
  return [
    { path, text: `${found}; set the variable, or leave out this key to use PGHOST and libpq's other variables` },
  ];
}

function unsetText(name: string, declared: readonly string[], isSql: boolean): string {
  if (isSql) {
    return `\${${name}} is no param; declare it under params`;
  }
  return declared.includes(name)
    ? `\${${name}} is a param that comes later: params see those above them, timezone sees none`
    : `\${${name}} is neither a param nor an environment variable; set it, or write \${${name}:-default}`;
}
