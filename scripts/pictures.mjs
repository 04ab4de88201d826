// Draws the pictures of the docs: docs/pictures/*.svg. With --check it fails when one is stale.
import { readFileSync, writeFileSync } from "node:fs";

const style = `
.paper{fill:#fff}.box{fill:#f4f6fa;stroke:#5b6577}.good{fill:#e5f4e9;stroke:#2f7d46}.bad{fill:#fdeceb;stroke:#b3362b}.wait{fill:#fff4d6;stroke:#9a7412}
text{fill:#1d2430;font:14px system-ui,sans-serif}.small{font-size:12px;fill:#4c5566}.code{font-family:ui-monospace,monospace;font-size:12px}.line{stroke:#5b6577;fill:none}.tip{fill:#5b6577}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.box{fill:#1c232d;stroke:#8a94a6}.good{fill:#12301c;stroke:#5fb37a}.bad{fill:#3a1614;stroke:#e0776c}.wait{fill:#332a0d;stroke:#c9a227}text{fill:#e6ebf2}.small{fill:#a9b3c2}.line{stroke:#8a94a6}.tip{fill:#8a94a6}}`;

const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function svg(title, [width, height], parts) {
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">`;
  return [head, `<title>${escaped(title)}</title>`, ...parts.flat(), "</svg>", ""].join("\n");
}

function picture(title, [width, height], parts) {
  const tip = `<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>`;
  const paper = `<rect class="paper" width="${width}" height="${height}" rx="8"/>`;
  return svg(title, [width, height], [`<style>${style}</style>`, tip, paper, ...parts]);
}

/** Pixels of a character on average, by class of text. */
const charWidth = { "": 7.6, small: 6.4, code: 7.3 };

/** A text of some lines around a point. A line that begins with $ is a command. */
function label(x, y, text, { kind = "", anchor = "middle" } = {}) {
  const lines = text.split("\n");
  return lines.map((line, index) => {
    const isCode = line.startsWith("$ ");
    const name = isCode ? "code" : kind;
    const top = y + 5 + (index - (lines.length - 1) / 2) * 17;
    return `<text x="${x}" y="${top}" text-anchor="${anchor}"${name === "" ? "" : ` class="${name}"`}>${escaped(isCode ? line.slice(2) : line)}</text>`;
  });
}

function box([x, y, width, height], text, kind = "box") {
  for (const line of text.split("\n")) {
    const needed = line.replace(/^\$ /, "").length * charWidth[line.startsWith("$ ") ? "code" : ""];
    if (needed > width) {
      throw new Error(`"${line}" needs a box of ${Math.ceil(needed)}, not ${width}`);
    }
  }
  return [
    `<rect class="${kind}" x="${x}" y="${y}" width="${width}" height="${height}" rx="6"/>`,
    ...label(x + width / 2, y + height / 2, text),
  ];
}

/** A line with a tip at its end and a text at one place. */
function arrow(path, text, at, anchor) {
  return [
    `<path class="line" d="${path}" marker-end="url(#tip)"/>`,
    ...(text === undefined ? [] : label(...at, text, { kind: "small", anchor })),
  ];
}

const states = picture(
  "States of a run: unfinished, published, held, discarded, superseded",
  [760, 330],
  [
    box([20, 120, 120, 44], "unfinished"),
    arrow("M80 120L80 82L50 82L50 118", "killed, or an error:\nthe same command continues", [16, 50], "start"),
    arrow("M140 142L198 142", "all spans", [169, 128]),
    box([200, 120, 110, 44], "judged", "box"),
    arrow("M255 120L255 62L548 62", "checks pass, or there are none", [400, 48]),
    box([550, 40, 90, 44], "published", "good"),
    arrow("M640 62L668 62"),
    box([670, 40, 70, 44], "pruned"),
    arrow("M310 142L368 142", "a check fails", [340, 108]),
    box([370, 120, 110, 44], "held", "wait"),
    arrow("M480 142L595 142L595 86", "approve", [538, 128]),
    arrow("M425 164L425 206L548 206", "discard", [490, 192]),
    box([550, 184, 190, 44], "discarded", "bad"),
    arrow("M395 164L395 276L548 276", "run --new-run", [470, 262]),
    box([550, 254, 190, 44], "superseded", "bad"),
    label(20, 300, "A run that is held or discarded ends with exit code 67; readers keep what they had.", {
      kind: "small",
      anchor: "start",
    }),
  ],
);

const commit = picture(
  "From a plan to spans to an atomic commit",
  [760, 300],
  [
    box([20, 30, 150, 70], "plan\nfiles, model, spec\nrows 0 … N-1"),
    arrow("M170 65L218 65"),
    ...[0, 1, 2, 3].map((span) => box([220 + span * 84, 44, 78, 42], `span ${span}`, span < 2 ? "good" : "box")),
    label(386, 108, "spans 0 and 1 are committed; the same command scores 2 and 3", { kind: "small" }),
    arrow("M427 122L427 158"),
    box([20, 160, 130, 60], "read\ncolumns"),
    arrow("M150 190L178 190"),
    box([180, 160, 130, 60], "score\nbatches"),
    arrow("M310 190L338 190"),
    box([340, 160, 170, 60], "one atomic commit:\nrows and record", "good"),
    arrow("M510 190L548 190"),
    box([550, 130, 190, 52], "Postgres:\none transaction"),
    box([550, 198, 190, 52], "files: one part that\nappears whole or not"),
    label(20, 262, "Killed before the commit: nothing is there. After it: all of the span is.", {
      kind: "small",
      anchor: "start",
    }),
    label(20, 282, "Two processes with one span: the first commit wins, the other drops its rows.", {
      kind: "small",
      anchor: "start",
    }),
  ],
);

const exit66 = picture(
  "What to do after exit code 66",
  [760, 360],
  [
    box([270, 16, 220, 44], "66: the world changed", "bad"),
    arrow("M380 60L380 84"),
    box([230, 86, 300, 48], "$ infer-batch status job.yaml …\nWhat has changed?"),
    arrow("M300 134L130 172"),
    arrow("M380 134L380 172"),
    arrow("M460 134L630 172"),
    box([20, 174, 220, 50], "file, model or spec:\nit should not have"),
    box([270, 174, 220, 50], "file, model or spec:\nit should have"),
    box([520, 174, 220, 50], "a newer date has\npublished to this table"),
    arrow("M130 224L130 258"),
    arrow("M380 224L380 258"),
    arrow("M630 224L630 258"),
    box([20, 260, 220, 64], "put it back, then\n$ infer-batch run job.yaml …\nthe rest is scored", "good"),
    box([270, 260, 220, 64], "$ infer-batch run … --new-run\nall rows are scored\nagain", "good"),
    box([520, 260, 220, 64], "leave it; or, if its rows\nmay replace the newer:\n$ --allow-older", "wait"),
  ],
);

const promotion = picture(
  "A new model from a sample to promotion",
  [760, 250],
  [
    box([20, 30, 160, 62], "on a sample\n$ infer-batch compare"),
    arrow("M180 61L208 61"),
    box([210, 30, 160, 62], "every night, beside\nthe old one\n$ challenger:"),
    arrow("M370 61L398 61"),
    box([400, 30, 160, 62], "labels are known\n$ infer-batch evaluate"),
    arrow("M560 61L588 61"),
    box([590, 30, 150, 62], "promote\n$ model.path", "good"),
    arrow("M290 92L290 128", "differs too much", [300, 112], "start"),
    arrow("M480 92L480 128", "no better", [490, 112], "start"),
    box([210, 130, 350, 44], "the old model goes on: only it was published", "box"),
    arrow("M665 92L665 128", "held?", [655, 112], "end"),
    box([590, 130, 150, 44], "$ infer-batch approve", "wait"),
    arrow("M665 174L665 200", "it disappoints", [655, 188], "end"),
    box([590, 202, 150, 36], "$ infer-batch rollback", "bad"),
  ],
);

/** A session that was recorded: lines that begin with $ are typed. */
function terminal(title, lines) {
  const width = 980;
  const height = 40 + lines.length * 20;
  const colours = { $: "#e6ebf2", "!": "#e0776c", "=": "#7fd397" };
  const rows = lines.map((line, index) => {
    const fill = colours[line[0]] ?? "#a9b3c2";
    const text = /^[!=]/.test(line) ? line.slice(1) : line;
    return `<text x="18" y="${38 + index * 20}" fill="${fill}" xml:space="preserve">${escaped(text)}</text>`;
  });
  return svg(
    title,
    [width, height],
    [
      `<rect width="${width}" height="${height}" rx="8" fill="#161b22"/>`,
      `<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="13">`,
      ...rows,
      "</g>",
    ],
  );
}

const resume = terminal("A run is killed, and the same command does the rest", [
  "$ infer-batch run job.yaml --param ds=2026-11-20",
  "[03:03:52] INFO: planned run churn-a2fb5d6c4ad8: 4,000,000 rows of 1 shard, in 16 spans of up to 262,144 rows",
  "!Killed",
  "$ infer-batch status job.yaml --param ds=2026-11-20",
  "churn-a2fb5d6c4ad8: unfinished, 9 of 16 spans committed (2,359,296 of 4,000,000 rows) -> out/dt=2026-11-20",
  "  to continue: infer-batch run job.yaml --param ds=2026-11-20",
  "$ infer-batch run job.yaml --param ds=2026-11-20",
  "[03:03:58] INFO: resuming run churn-a2fb5d6c4ad8: 9 of 16 spans committed",
  "=churn-a2fb5d6c4ad8: complete, 1,640,704 rows scored in 2.0 s (837 k rows/s), 9 spans found committed -> out/dt=2026-11-20",
  "$ infer-batch status job.yaml --param ds=2026-11-20",
  "churn-a2fb5d6c4ad8: published, 16 of 16 spans committed (4,000,000 rows) -> out/dt=2026-11-20",
  "  worker 0/1  vm.27931.81a822c2  9 spans",
  "  worker 0/1  vm.28535.4b8c62ed  7 spans",
]);

const pictures = { states, commit, "exit-66": exit66, promotion, resume };

for (const [name, text] of Object.entries(pictures)) {
  const path = `docs/pictures/${name}.svg`;
  if (!process.argv.includes("--check")) {
    writeFileSync(path, text);
  } else if (readFileSync(path, "utf8") !== text) {
    console.error(`${path} is stale: run npm run docs`);
    process.exitCode = 1;
  }
}
