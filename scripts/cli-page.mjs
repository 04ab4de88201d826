// The reference of the command line, from the definitions that commander parses by.
import { createProgram, examplesOfAll } from "../dist/cli/program.js";

const program = await createProgram(process);
const examples = await examplesOfAll();

const cell = (text) => text.replaceAll("|", "\\|").replaceAll("<", "&lt;");

function standard({ defaultValue, defaultValueDescription, mandatory, negate }) {
  if (mandatory) return "required";
  if (negate || defaultValue === undefined || defaultValueDescription === "none") return "";
  return `\`${defaultValueDescription ?? defaultValue}\``;
}

const head = ["| option | default | meaning |", "| --- | --- | --- |"];

function optionRow(option) {
  const choices = option.argChoices === undefined ? "" : ` (${option.argChoices.join(", ")})`;
  return `| \`${option.flags.replaceAll("|", "\\|")}\` | ${standard(option)} | ${cell(option.description + choices)} |`;
}

const allRows = program.commands.flatMap(({ options }) => options.map(optionRow));

/** Rows that three commands or more have, word for word: they stand once. */
const shared = new Set(allRows.filter((row) => allRows.filter((other) => other === row).length > 2));

function optionRows({ options }) {
  const own = options.map(optionRow).filter((row) => !shared.has(row));
  const others = options.filter((option) => shared.has(optionRow(option))).map(({ long }) => `\`${long}\``);
  return [
    ...(own.length === 0 ? [] : [...head, ...own, ""]),
    ...(others.length === 0 ? [] : [`[Shared](#shared-options): ${others.join(", ")}.`, ""]),
  ];
}

const specIs = "Job spec, a YAML file";

function argumentLines(command) {
  const said = command.registeredArguments.filter(({ description }) => description !== specIs);
  return said.map((argument) => {
    const known = argument.defaultValue === undefined ? "" : `; default \`${argument.defaultValue}\``;
    return `- \`${argument.name()}\`: ${argument.description}${known}`;
  });
}

function exampleLines(command) {
  const lines = examples[command.name()] ?? [];
  return lines.length === 0 ? [] : ["```", ...lines, "```", ""];
}

function section(command) {
  const usage = `${program.name()} ${command.name()} ${command.usage()}`.trim();
  const given = argumentLines(command);
  return [
    `## ${command.name()}`,
    "",
    `\`${usage}\``,
    "",
    `${command.description()}.`,
    "",
    ...exampleLines(command),
    ...(given.length === 0 ? [] : [...given, ""]),
    ...optionRows(command),
  ];
}

export function cliPage() {
  return [
    "# Command line",
    "",
    "Generated from `src/cli/program.ts` and `src/cli/commands/` by `npm run docs`: do not edit this page. `infer-batch help <command>` prints the same text.",
    "",
    "The result goes to stdout, everything else to stderr. [The runbook](runbook.md#exit-codes) lists the exit codes. `<spec>` is a job spec, a YAML file. Every command also takes `--help`; `infer-batch --version` prints the version.",
    "",
    "## Shared options",
    "",
    ...head,
    ...shared,
    "",
    ...program.commands.flatMap(section),
  ].join("\n");
}
