// The tables that bench/gpu has measured: which providers ran, and the text for bench/results-gpu.md.

/** Every provider that the tables name. */
export const allProviders = ["cpu", "webgpu", "cuda", "tensorrt"];
const [begin, end] = ["<!-- npm run bench:gpu -->", "<!-- the end of what bench:gpu writes -->"];

/**
 * What one part has measured.
 * @typedef {object} Part
 * @property {string} title
 * @property {readonly (readonly string[])[]} rows the head first; a row for each provider, or a column
 * @property {string} command
 * @property {string} date
 * @property {string} [commit] of the program that was measured
 */

/**
 * @typedef {object} Results
 * @property {string} machine with its devices
 * @property {readonly string[]} versions
 * @property {boolean} short
 * @property {Readonly<Record<string, string>>} notRun why, for each provider that does not run here
 * @property {Readonly<Record<string, Part>>} parts
 */

/**
 * Says of each provider that does not run here why.
 * @param {{ trials: readonly { provider: string, state: string, fault: string | null }[], parts: readonly { name: string,
 * state: string, found: string }[] }} doctor
 * @returns {Record<string, string>}
 */
export function whyNotRun({ trials, parts }) {
  const inOrder = allProviders.flatMap((name) => trials.filter(({ provider }) => provider === name));
  const reasons = inOrder
    .filter(({ provider, state }) => provider !== "cpu" && state !== "ok")
    .map(({ provider, state, fault }) => [
      provider,
      state === "idle" ? "it has none of the model's operators" : missing(provider, parts, fault),
    ]);
  return Object.fromEntries(reasons);
}

/** Parts of NVIDIA's providers, as doctor names them, in the order in which a person would look for them. */
const nvidiaParts = [/^GPUs$/, /^NVIDIA driver$/, /^provider library$/, /^CUDA/];

function missing(provider, parts, fault) {
  const wanted = provider === "webgpu" ? [/^Vulkan/] : [...nvidiaParts, ...(provider === "cuda" ? [] : [/^TensorRT$/])];
  const absent = parts.filter(({ state }) => state === "missing");
  const [first] = wanted.flatMap((name) => absent.filter((part) => name.test(part.name)));
  if (first === undefined) {
    return (fault ?? "it failed").split("\n")[0];
  }
  return first.name === "GPUs" ? "no NVIDIA GPU here" : `${first.name}: ${first.found}`;
}

/**
 * Adds what was measured to what an earlier command has measured on the same machine, with the same size of jobs.
 * @param {Results | undefined} earlier
 * @param {Results} results
 * @returns {Results}
 */
export function merge(earlier, results) {
  const isSame = earlier !== undefined && earlier.machine === results.machine && earlier.short === results.short;
  return isSame ? { ...results, parts: { ...earlier.parts, ...results.parts } } : results;
}

/**
 * @param {Results} results
 * @param {readonly string[]} order of the parts
 * @returns {string} Markdown
 */
export function formatResults({ machine, versions, short, notRun, parts }, order) {
  const sections = order.flatMap((id) => {
    const { title, rows, command, date, commit } = parts[id] ?? { title: id, rows: undefined };
    const when = commit === undefined ? date : `${date}, ${commit}`;
    const about = rows === undefined ? "not measured." : `(\`${command}\`, ${when})`;
    return ["", `**${title}** ${about}`, ...(rows === undefined ? [] : ["", ...table(withNotRun(rows, notRun))])];
  });
  return [
    `- Machine: ${machine}`,
    `- Versions: ${versions.join(", ")}`,
    ...Object.entries(notRun).map(([provider, why]) => `- \`${provider}\` was not run: ${why}.`),
    ...(short
      ? [
          "- `--short`: small models and few rows, which try the script. Its rates say nothing, neither about a GPU nor about this CPU.",
        ]
      : []),
    ...sections,
  ].join("\n");
}

/** Adds a row, or a column, for each provider that did not run. */
function withNotRun([head, ...rows], notRun) {
  const at = head.indexOf("provider");
  if (at === -1) {
    const others = Object.entries(notRun);
    return [
      [...head, ...others.map(([provider, why]) => `${provider}: not run, ${why}`)],
      ...rows.map((row) => [...row, ...others.map(() => "–")]),
    ];
  }
  const absent = Object.entries(notRun).filter(([provider]) => rows.every((row) => row[at] !== provider));
  return [
    head,
    ...rows,
    ...absent.map(([provider, why]) => {
      const cells = head.map((_, index) => (index < at ? "all" : "–"));
      return cells.with(at, provider).with(at + 1, `not run: ${why}`);
    }),
  ];
}

function escaped(cell) {
  return cell.replaceAll("|", "\\|").replaceAll("\n", " ");
}

function table([head, ...rows]) {
  const rule = head.map((_, index) => (index === 0 ? "---" : "---:"));
  return [head, rule, ...rows].map((row) => `| ${row.map(escaped).join(" | ")} |`);
}

/**
 * Puts the text between the marks of a page.
 * @param {string} page
 * @param {string} text
 */
export function withResults(page, text) {
  const [before, rest] = page.split(begin);
  const after = rest?.split(end)[1];
  if (after === undefined) {
    throw new Error(`writing the tables of bench:gpu: the page has no ${begin} with ${end} behind it`);
  }
  return `${before}${begin}\n\n${text}\n\n${end}${after}`;
}
