/**
 * Imports point inwards: cli -> job, serve -> run -> flow -> contracts and pure rooms <- kinds <- tools.
 * docs/architecture.md has the picture. scripts/check-imports.mjs runs these rules, and proves with a canary for each
 * that they bite.
 */
const pure =
  "^src/(job/jobfile|run/(plan|series|lifecycle)|columns|flow/pack|models/binding|checks)/|^src/base/(?!http/|cache-folder|sha256|spool)";
const contracts =
  "^src/(sources/source|formats/format|models/engine|models/places/place|targets/target|stores/ledger)\\.ts$";
/** Each knows what all of them share, and no other: another place of models is one file more. */
const places = "^src/models/places/(?!(place|model-file|cache)\\.ts$)";

/**
 * @param {string} room a folder below src/
 * @param {string} [also] what its files may import besides
 */
const roomRule = (room, also = "$^") => ({
  name: `${room.replaceAll("/", "-")}-imports-its-own`,
  comment: `src/${room}/ may import its own files, the pure rooms, digests, its contract and the tools that it adapts`,
  severity: "error",
  from: { path: `^src/${room}/` },
  to: { path: "^src/", pathNot: `^src/${room}/|^src/base/sha256\\.ts$|${pure}|${also}` },
});

/** Rooms that hold several kinds: each knows the room's contract, and no other kind. */
const contract = (room) => `^src/${room}/[^/]+\\.ts$`;

/**
 * Folders that are deep, and their doors: what others may import of them. job/kinds.ts opens them by
 * these, and commands take what one of them shows.
 */
const doors = {
  "flow/workers": "slice-reader|unit-server",
  "formats/arrow": "decoder|shards|units|inspect|pipe",
  "formats/parquet": "decoder|duckdb|footer|units|inspect",
  "job/threads": "worker-threads",
  "models/prompts": "engine|task|kept-answers",
  "models/served": "engine|protocol|server|turns|json|v2",
  "models/trees": "session",
  "report/page": "page",
  serve: "serve",
  "sources/kafka": "source",
  "sources/lake": "source|rest-catalog|delta|iceberg|avro|snapshot",
  "stores/objects": "open|store|protocol|aws-credentials",
  "targets/parquet": "sink|part-file|parts|manifest|layout|other-runs",
  "targets/postgres": "sink|connect",
};

const doorRules = Object.entries(doors).map(([folder, files]) => ({
  name: `doors-of-${folder.replace("/", "-")}`,
  comment: "others import the doors of a folder only; another door is a decision",
  severity: "error",
  from: { path: "^src/", pathNot: `^src/${folder}/` },
  to: { path: `^src/${folder}/`, pathNot: `^src/${folder}/(${files})\\.ts$` },
}));

export default {
  forbidden: [
    ...doorRules,
    {
      name: "no-cycles",
      comment: "what is imported when it is needed may know who asked",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["dynamic-import"] } },
    },
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
      name: "columns-know-no-model",
      comment: "src/columns/ is below bindings, plans and specs",
      severity: "error",
      from: { path: "^src/columns/" },
      to: { path: "^src/", pathNot: "^src/(columns|base)/" },
    },
    {
      name: "checks-know-columns-only",
      comment: "profiles and verdicts know no model, plan or spec",
      severity: "error",
      from: { path: "^src/checks/" },
      to: { path: "^src/", pathNot: "^src/(checks|columns|base)/" },
    },
    {
      name: "run-knows-contracts-only",
      severity: "error",
      from: { path: "^src/run/" },
      to: { path: "^src/", pathNot: `^src/(run|flow|report)/|^src/base/sha256\\.ts$|${contracts}|${pure}` },
    },
    {
      name: "flow-knows-contracts-only",
      severity: "error",
      from: { path: "^src/flow/" },
      to: { path: "^src/", pathNot: `^src/(flow|report)/|${contracts}|${pure}` },
    },
    {
      name: "run-knows-no-library-or-node",
      severity: "error",
      from: { path: "^src/(run|flow)/" },
      to: { dependencyTypes: ["npm", "core"] },
    },
    {
      name: "no-format-imports-another",
      comment: "what two formats need is in src/columns/, or beside their contract",
      severity: "error",
      from: { path: "^src/formats/(parquet|arrow)/" },
      to: { path: "^src/formats/(parquet|arrow)/", pathNot: "^src/formats/$1/" },
    },
    {
      name: "what-formats-share-knows-no-format",
      severity: "error",
      from: { path: "^src/formats/(sql/|[^/]+$)" },
      to: { path: "^src/formats/(parquet|arrow)/" },
    },
    roomRule("formats", "^src/(duckdb/|base/spool)"),
    roomRule("sources", "^src/(stores/objects/|base/(spool|http/))"),
    {
      name: "no-place-imports-another",
      severity: "error",
      from: { path: "^src/models/places/" },
      to: { path: places },
    },
    roomRule("models/places", "^src/(stores/objects|base/http|models/file)/"),
    roomRule("models", "^src/(stores/objects|base/http)/"),
    roomRule("models/file"),
    roomRule("targets/parquet", `^src/(duckdb/|base/spool)|^src/stores/(store|ledger)\\.ts$|${contract("targets")}`),
    roomRule("stores", "^src/base/(spool|http/)"),
    {
      name: "no-store-imports-another",
      comment: "another kind of store is one file more",
      severity: "error",
      from: { path: "^src/stores/(?!disk|objects/)" },
      to: { path: "^src/stores/", pathNot: "^src/stores/(store\\.ts$|objects/)" },
    },
    roomRule("targets/postgres", `^src/base/spool|^src/stores/ledger\\.ts$|${contract("targets")}`),
    roomRule("targets/after", `^src/duckdb/key-values\\.ts$|${contract("targets")}`),
    roomRule("duckdb"),
    roomRule("stores/objects", "^src/base/http/"),
    roomRule("base/http"),
    roomRule("report"),
    {
      name: "serve-knows-no-kind",
      comment: "it answers with runs and models that others have opened",
      severity: "error",
      from: { path: "^src/serve/" },
      to: {
        path: "^src/",
        pathNot: `^src/(serve|run|flow|report|duckdb|base|formats/sql|models/served)/|${contracts}|${pure}`,
      },
    },
    {
      name: "only-cli-and-job-wire",
      comment:
        "nothing imports cli/, nothing but cli/ imports job/, and nothing but these and serve/ imports run/; their pure rooms are for all",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/(cli|job|run|serve)/" },
      to: { path: "^src/(cli|job|run)/", pathNot: pure },
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
      to: { path: "^src/", pathNot: "^src/(start/|base/cache-folder\\.ts$)" },
    },
    {
      name: "run-does-not-know-cli",
      severity: "error",
      from: { path: "^src/run/" },
      to: { path: "^src/(cli|job)/", pathNot: pure },
    },
    { name: "job-does-not-know-cli", severity: "error", from: { path: "^src/job/" }, to: { path: "^src/cli/" } },
  ],
};
