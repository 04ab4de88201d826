import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { projectFolder } from "./cli.js";

const schema = JSON.parse(readFileSync(join(projectFolder, "jobs/infer-batch.schema.json"), "utf8")) as object;
const isValid = new Ajv2020({ allErrors: true, strict: false }).compile(schema);

/** What a validator of JSON Schema 2020-12 says against a spec, a line each; an editor underlines the same. */
export function schemaErrors(spec: unknown): string[] {
  isValid(spec);
  return (isValid.errors ?? []).map(({ instancePath, message = "", params }) =>
    [instancePath, message, JSON.stringify(params)].join(" "),
  );
}
