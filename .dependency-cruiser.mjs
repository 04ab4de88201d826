/**
 * Imports point inwards: cli -> app -> run -> scoring -> ports and pure rooms <- adapters <- tools.
 * docs/architecture.md has the picture. scripts/check-imports.mjs runs these rules, and proves with a canary for each
 * that they bite.
 */
const pure =
  "^src/(spec|plan|columnar|binding|packing|checks|publish|jobs|text)/|^src/base/(?!cache-folder|sha256|spool|writers)";
const ports = "^src/(storage|formats|models|engine|sink)/(port|answers|ledger)\\.ts$";
/** Each knows what all of them share, and no other: another kind of model is one file more. */
const modelSources = "^src/models/places/(?!(port|model-file|cache)\\.ts$)";

/**
 * @param {string} room a folder below src/
 * @param {string} [also] what its files may import besides
 */
const roomRule = (room, also = "$^") => ({
  name: `${room.replaceAll("/", "-")}-imports-its-own`,
  comment: `src/${room}/ may import its own files, the pure rooms, digests, its port and the tools that it adapts`,
  severity: "error",
  from: { path: `^src/${room}/` },
  to: { path: "^src/", pathNot: `^src/${room}/|^src/base/sha256\\.ts$|${pure}|${also}` },
});

/** Rooms that hold several adapters: each knows the room's port, and no other adapter. */
const port = (room) => `^src/${room}/[^/]+\\.ts$`;

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
      name: "columns-know-no-model",
      comment: "src/columns/ is below bindings, plans and specs",
      severity: "error",
      from: { path: "^src/columns/" },
      to: { path: "^src/", pathNot: "^src/(columnar|util)/" },
    },
    {
      name: "checks-know-columns-only",
      comment: "profiles and verdicts know no model, plan or spec",
      severity: "error",
      from: { path: "^src/checks/" },
      to: { path: "^src/", pathNot: "^src/(checks|columnar|util)/" },
    },
    {
      name: "run-knows-ports-only",
      severity: "error",
      from: { path: "^src/run/" },
      to: { path: "^src/", pathNot: `^src/(run|scoring|report)/|${ports}|${pure}` },
    },
    {
      name: "scoring-knows-ports-only",
      severity: "error",
      from: { path: "^src/flow/" },
      to: { path: "^src/", pathNot: `^src/(scoring|report)/|${ports}|${pure}` },
    },
    {
      name: "run-knows-no-library-or-node",
      severity: "error",
      from: { path: "^src/(run|scoring)/" },
      to: { dependencyTypes: ["npm", "core"] },
    },
    {
      name: "no-format-imports-another",
      comment: "what two formats need is in src/columns/, or beside their port",
      severity: "error",
      from: { path: "^src/formats/(parquet|arrow)/" },
      to: { path: "^src/formats/(parquet|arrow)/", pathNot: "^src/formats/$1/" },
    },
    {
      name: "what-formats-share-knows-no-format",
      severity: "error",
      from: { path: "^src/formats/(sql/|codecs/|[^/]+$)" },
      to: { path: "^src/formats/(parquet|arrow)/" },
    },
    roomRule("formats", "^src/(duckdb/|util/(spool|writers))"),
    roomRule("storage", "^src/(objects/|util/spool)"),
    {
      name: "no-model-source-imports-another",
      severity: "error",
      from: { path: "^src/models/places/" },
      to: { path: modelSources },
    },
    roomRule("models", "^src/(objects|net|onnx)/"),
    roomRule("engine", "^src/(onnx|net)/"),
    roomRule("onnx"),
    roomRule("sink/parquet", `^src/duckdb/|^src/stores/store\\.ts$|${port("sink")}`),
    roomRule("stores", "^src/stores/objects/|^src/base/spool"),
    {
      name: "no-store-imports-another",
      comment: "another kind of store is one file more",
      severity: "error",
      from: { path: "^src/stores/(?!disk)" },
      to: { path: "^src/stores/", pathNot: "^src/stores/store\\.ts$" },
    },
    roomRule("sink/postgres", port("sink")),
    roomRule("sink/arrow", port("sink")),
    roomRule("duckdb"),
    roomRule("objects", "^src/base/http/"),
    roomRule("net"),
    roomRule("report"),
    {
      name: "only-cli-and-app-wire",
      comment: "nothing imports cli/, nothing but cli/ imports app/, and nothing but these imports run/",
      severity: "error",
      from: { path: "^src/", pathNot: "^src/(cli|app|run)/" },
      to: { path: "^src/(cli|app|run)/" },
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
      to: { path: "^src/", pathNot: "^src/(start/|util/cache-folder\\.ts$)" },
    },
    { name: "run-does-not-know-cli", severity: "error", from: { path: "^src/run/" }, to: { path: "^src/(cli|app)/" } },
    { name: "app-does-not-know-cli", severity: "error", from: { path: "^src/job/" }, to: { path: "^src/cli/" } },
  ],
};
