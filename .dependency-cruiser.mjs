/**
 * Imports point inwards: cli -> run -> ports and pure rooms <- adapters. docs/architecture.md has the picture.
 * scripts/check-imports.mjs runs these rules, and proves with a canary that they bite.
 */
const pure = "^src/(spec|plan|batch)/|^src/(errors|line|printable|retry|suggest|when-needed|zod)\\.ts$";
const ports = "^src/(source|decode|engine|sink)/port\\.ts$";

/** @param {string} room */
const adapterRule = (room, also = "$^") => ({
  name: `${room}-adapters-stay-in-their-room`,
  comment: `src/${room}/ may import its own files, the pure rooms and what it adapts`,
  severity: "error",
  from: { path: `^src/${room}/` },
  to: { path: "^src/", pathNot: `^src/${room}/|${pure}|${also}` },
});

export default {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    {
      name: "unresolved",
      comment: "an import that cannot be resolved would escape every other rule",
      severity: "error",
      from: {},
      to: { couldNotResolve: true },
    },
    {
      name: "pure-rooms-import-pure-rooms",
      severity: "error",
      from: { path: pure },
      to: { path: "^src/", pathNot: pure },
    },
    {
      name: "pure-rooms-know-no-node",
      severity: "error",
      from: { path: pure },
      to: { dependencyTypes: ["core"] },
    },
    {
      name: "run-knows-ports-only",
      severity: "error",
      from: { path: "^src/run/" },
      to: { path: "^src/", pathNot: `^src/(run|report)/|${ports}|${pure}` },
    },
    {
      name: "run-knows-no-library-or-node",
      severity: "error",
      from: { path: "^src/run/" },
      to: { dependencyTypes: ["npm", "core"] },
    },
    adapterRule("source", "^src/s3/"),
    adapterRule("decode", "^src/duckdb/"),
    adapterRule("engine", "^src/s3/"),
    adapterRule("sink", "^src/(duckdb|s3)/"),
    adapterRule("duckdb"),
    adapterRule("s3"),
    adapterRule("report"),
    {
      name: "only-cli-wires",
      comment: "nothing imports cli/, and nothing but cli/ imports run/",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/(cli|run)/" },
      to: { path: "^src/(cli|run)/" },
    },
    {
      name: "start-is-its-own-bundle",
      comment: "what loads the program is no part of it",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/start/" },
      to: { path: "^src/start/" },
    },
    {
      name: "start-loads-little",
      comment: "it is compiled anew by each process and thread",
      severity: "error",
      from: { path: "^src/start/" },
      to: { path: "^src/", pathNot: "^src/(start/|cache-folder\\.ts$)" },
    },
    { name: "run-does-not-know-cli", severity: "error", from: { path: "^src/run/" }, to: { path: "^src/cli/" } },
  ],
};
