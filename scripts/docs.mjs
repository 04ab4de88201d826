// Writes what is made from the definitions: the JSON Schema for editors, the references of job spec and command line.
// With --check it changes nothing and fails when a file is stale.
import { readFileSync, writeFileSync } from "node:fs";
import { checkSpec, editorSchema, specJsonSchema } from "../dist/job/jobfile/job-spec.js";
import { cliPage } from "./cli-page.mjs";

const schema = specJsonSchema();

/** What the parser makes of a spec that says nothing it need not say. */
const defaults = [{ parquet: { path: "path" } }, { postgres: { table: "table" } }].map(
  (output) => checkSpec({ version: 1, name: "name", input: { path: "path" }, model: { path: "path" }, output }).spec,
);

const valueAt = (path) =>
  defaults
    .map((spec) => path.split(".").reduce((value, key) => value?.[key], spec))
    .find((value) => value !== undefined);

function typeText(node) {
  if (node.const !== undefined) return `\`${node.const}\``;
  if (node.enum !== undefined) return node.enum.map((value) => `\`${value}\``).join(", ");
  if (node.anyOf !== undefined) {
    return [...new Set(node.anyOf.map(typeText))].filter((text) => text !== "text of a number").join(" or ");
  }
  if (node.prefixItems !== undefined) return `[${node.prefixItems.map(typeText).join(", ")}]`;
  if (node.type === "array") return `list of ${typeText(node.items)}`;
  if (node.type === "object") return "mapping";
  if (node.type === "integer") {
    if (node.minimum === Number.MIN_SAFE_INTEGER) return "whole number";
    const most = node.maximum === Number.MAX_SAFE_INTEGER ? "" : ` to ${node.maximum}`;
    return `number from ${node.minimum}${most}`;
  }
  if (node.type === "string" && node.pattern?.includes("\\d{1,15}")) return "text of a number";
  return node.type === "string" ? "text" : String(node.type);
}

const cell = (text) => text.replaceAll("|", "\\|").replaceAll("<", "&lt;");

/** @param needed whether each spec has this mapping @param around the class of the keys around it */
function* rows(node, path, needed = true, around) {
  for (const [key, child] of Object.entries(node.properties ?? {})) {
    const name = path === "" ? key : `${path}.${key}`;
    const required = (node.required ?? []).includes(key);
    const own = child.class ?? around;
    if (child.properties !== undefined) {
      yield* rows(child, name, needed && required, own);
      continue;
    }
    if (own === undefined) {
      throw new Error(`the key ${name} has no class: give it one where it is defined`);
    }
    const value = child.default ?? valueAt(name);
    const known = value === undefined ? "" : `\`${JSON.stringify(value)}\``;
    const standard = required ? (needed ? "required" : `required in \`${path}\``) : known;
    yield {
      name,
      type: typeText(child),
      standard,
      class: own,
      meaning: cell(child.description ?? ""),
    };
    const entry =
      name === "params"
        ? undefined
        : child.additionalProperties?.anyOf?.find(({ properties }) => properties !== undefined);
    if (entry !== undefined) {
      yield* rows(entry, `${name}.<name>`, needed, own);
    }
  }
}

/** Keys of the left that mean what those of the right do share a line, which comes after that of a key. */
const alike = [
  ["challenger", "model", "as for the model", "challenger.path"],
  ["output.delta", "output.parquet", "as for files", "output.delta.path"],
  ["output.iceberg.catalog", "input.catalog", "as for input", "output.iceberg.table"],
  ["output.iceberg", "output.delta", "as for Delta", "output.iceberg.table"],
];

/** A key with the type and text of the same key of another place is one of that one's. */
function isAsElsewhere({ name, type, meaning }, all) {
  const [place, other] = alike.find(([keys]) => name.startsWith(`${keys}.`)) ?? [];
  const elsewhere = name.replace(place, other);
  return (
    elsewhere !== name && all.some((row) => row.name === elsewhere && row.type === type && row.meaning === meaning)
  );
}

/** The lines of the table; keys that are as elsewhere share one. */
function* lines() {
  const all = [...rows(schema, "")];
  for (const row of all.filter((one) => !isAsElsewhere(one, all))) {
    yield `| \`${row.name}\` | ${row.type} | ${row.standard} | ${row.class} | ${row.meaning} |`;
    for (const [place, other, how] of alike.filter(([, , , key]) => row.name === key)) {
      const isOfPlace = ({ name }) => alike.find(([keys]) => name.startsWith(`${keys}.`))?.[0] === place;
      const shared = all.filter(isOfPlace).filter((each) => isAsElsewhere(each, all));
      const keys = shared.map(({ name }) => name.slice(place.length + 1).split(".")[0]);
      // No run pins its challenger.
      const classes = new Set(
        shared.map((each) => (place === "challenger" && each.class === "plan" ? "attempt" : each.class)),
      );
      const names = [...new Set(keys)].map((key) => `\`${key}\``);
      yield `| \`${place}.*\` | as \`${other}.*\` | | ${[...classes].join(", ")} | ${names.join(", ")} and the keys below them: ${how}. |`;
    }
  }
}

const reference = [
  "# Job spec, version 1",
  "",
  "Generated from `src/job/jobfile/job-spec.ts` by `npm run docs`: do not edit this page. [The guide](guide.md) explains the keys with examples.",
  "",
  "Wherever a number is expected, `${…}` may stand for it.",
  "",
  "The class of a key says what its change means for a run that is planned already. *plan*: the run keeps the planned value, or the command is refused; if `name`, a param or the place of the output changes, the command works on another run. *attempt*: the next attempt uses the new value. *verdict*: the new value counts until the checks have decided whether the run is published or held. *secret*: as *attempt*; no message shows the value, and `${file:PATH}` may stand for it. [changes.md](changes.md) lists each case.",
  "",
  "| key | type | default | class | meaning |",
  "| --- | --- | --- | --- | --- |",
  ...lines(),
  "",
].join("\n");

const files = {
  "jobs/infer-batch.schema.json": `${JSON.stringify(editorSchema(), undefined, 2)}\n`,
  "docs/job-spec.md": reference,
  "docs/cli.md": cliPage(),
};

for (const [path, text] of Object.entries(files)) {
  if (!process.argv.includes("--check")) {
    writeFileSync(path, text);
  } else if (readFileSync(path, "utf8") !== text) {
    console.error(`${path} is stale: run npm run docs`);
    process.exitCode = 1;
  }
}
