// Prints the CPU time that profiling columns takes: milliseconds for a million values, and the bytes of the profile.
import { columnJson, profileColumn } from "#src/checks/profile/column.js";
import { randomFrom } from "./random.mjs";

const rows = 262_144;
const rounds = Number(process.argv[2] ?? 40);

const random = randomFrom(1);
const fixed = (data) => ({ kind: "fixed", elementsPerValue: 1, data, valid: undefined });
const logistic = (value) => 1 / (1 + Math.exp(-value));
const normal = () => Math.sqrt(-2 * Math.log(random() + 2 ** -33)) * Math.cos(2 * Math.PI * random());

function texts(names) {
  const encoded = names.map((name) => new TextEncoder().encode(name));
  const chosen = Array.from({ length: rows }, () => encoded[Math.floor(random() * names.length)]);
  const offsets = new Uint32Array(rows + 1);
  for (const [row, { length }] of chosen.entries()) {
    offsets[row + 1] = offsets[row] + length;
  }
  return { kind: "bytes", offsets, bytes: Buffer.concat(chosen), valid: undefined };
}

const dimension = 384;
const vectorRows = 4096;
const columns = {
  "score, float32": ["float32", fixed(Float32Array.from({ length: rows }, () => logistic(normal() - 2)))],
  "normal, float64": ["float64", fixed(Float64Array.from({ length: rows }, normal))],
  "label, int64": ["int64", fixed(BigInt64Array.from({ length: rows }, () => BigInt(Math.floor(random() * 3))))],
  "label, int64 beyond 2^53": [
    "int64",
    fixed(BigInt64Array.from({ length: rows }, () => 2n ** 60n + BigInt(Math.floor(random() * 3)))),
  ],
  "id, int64 beyond 2^53": [
    "int64",
    fixed(BigInt64Array.from({ length: rows }, () => 2n ** 60n + BigInt(Math.floor(random() * 2 ** 32)))),
  ],
  "label, utf8": ["utf8", texts(["Adelie", "Chinstrap", "Gentoo"])],
  "text of 5,000 values": ["utf8", texts(Array.from({ length: 5000 }, (_, index) => `district ${index}`))],
  truth: ["bool", fixed(Uint8Array.from({ length: rows }, () => (random() < 0.3 ? 1 : 0)))],
  [`elements of vectors of ${dimension}`]: [
    { kind: "list", element: "float32" },
    {
      kind: "list",
      offsets: Uint32Array.from({ length: vectorRows + 1 }, (_, row) => row * dimension),
      child: fixed(Float32Array.from({ length: vectorRows * dimension }, normal)),
      valid: undefined,
    },
  ],
};

const bins = 400;
console.log("| column | ms of CPU for a million values | bytes of JSON |\n| --- | ---: | ---: |");
for (const [name, [type, column]] of Object.entries(columns)) {
  const values = column.kind === "list" ? column.child.data.length : rows;
  const once = () => profileColumn({ name, type }, column, bins);
  const profile = once(); // and compiles
  console.log(
    `| ${name} | ${msOf(once, values).toFixed(1)} | ${JSON.stringify(columnJson(profile, { nameBytes: 12_288, namedRows: 1 })).length} |`,
  );
}

/** Milliseconds of CPU for a million values, of which `once` takes `values`. */
function msOf(once, values) {
  once();
  const { user, system } = process.cpuUsage();
  for (let round = 0; round < rounds; round += 1) {
    once();
  }
  const spent = process.cpuUsage();
  return (spent.user + spent.system - user - system) / 1000 / rounds / (values / 1e6);
}
