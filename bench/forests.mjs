// Random forests as ONNX files: the same bytes each time, kept in bench/data/.
import { mkdir, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { dataFolder } from "./data.mjs";
import { integer, message, rowsOf, text } from "./onnx-writer.mjs";
import { randomFrom } from "./random.mjs";

const features = 32;

/**
 * @typedef {object} Forest
 * @property {number} trees
 * @property {number} leaves of each tree
 * @property {boolean} [oblivious] a tree asks the same question everywhere at a depth
 */

/** Boosted trees of which a table takes seconds: by leaves first, and oblivious ones of depth 6. */
export const largeForests = {
  forest: { trees: 1000, leaves: 63 },
  oblivious: { trees: 2000, leaves: 64, oblivious: true },
};

/** How reports name a forest. @param {Forest} forest */
export function nameOfForest({ trees, leaves, oblivious = false }) {
  return `${trees} x ${leaves}${oblivious ? ", oblivious" : ""}`;
}

/** Where the file of a forest is. @param {Forest} forest */
export function forestFile(forest) {
  return join(dataFolder, "models", `trees-${nameOfForest(forest).replaceAll(/[ ,]+/g, "-")}.onnx`);
}

/** Writes the file of a forest unless it is there. @param {Forest} forest */
export async function prepareForest(forest) {
  const file = forestFile(forest);
  if (await stat(file).catch(() => undefined)) {
    return;
  }
  await mkdir(join(dataFolder, "models"), { recursive: true });
  await writeFile(`${file}.tmp`, bytesOf(forest));
  await rename(`${file}.tmp`, file);
}

/** TreeEnsembleRegressor: `input` float32 [N, 32] -> `score` float32 [N, 1]. Each feature has 250 thresholds. */
function bytesOf({ trees, leaves, oblivious = false }) {
  const random = randomFrom(7);
  const thresholds = Array.from({ length: features }, () => Array.from({ length: 250 }, () => random() * 6 - 3));
  const all = { tree: [], id: [], mode: [], feature: [], value: [], left: [], right: [], weight: [] };
  for (let tree = 0; tree < trees; tree += 1) {
    const questions = Array.from({ length: Math.log2(leaves) }, draw);
    const grown = oblivious ? growEven(questions, leaves) : growUneven(leaves);
    for (const [id, node] of grown.entries()) {
      all.tree.push(tree);
      all.id.push(id);
      all.mode.push(node.question === undefined ? "LEAF" : "BRANCH_LEQ");
      all.feature.push(node.question?.feature ?? 0);
      all.value.push(node.question?.threshold ?? 0);
      all.left.push(node.left ?? 0);
      all.right.push(node.right ?? 0);
      all.weight.push(node.question === undefined ? random() * 0.2 - 0.1 : undefined);
    }
  }
  return modelOf(all);

  function draw() {
    const feature = Math.floor(random() * features);
    return { feature, threshold: thresholds[feature][Math.floor(random() * 250)] };
  }

  /** As boosting grows trees, best leaf first: shallow leaves are split more often. */
  function growUneven(count) {
    const nodes = [{ depth: 0 }];
    while (nodes.length < 2 * count - 1) {
      const node = nodes[Math.floor(random() * nodes.length)];
      if (node.question === undefined && random() < 0.8 ** Math.max(0, node.depth - 3)) {
        Object.assign(node, { question: draw(), left: nodes.length, right: nodes.length + 1 });
        nodes.push({ depth: node.depth + 1 }, { depth: node.depth + 1 });
      }
    }
    return nodes;
  }
}

function growEven(questions, leaves) {
  return Array.from({ length: 2 * leaves - 1 }, (_, id) =>
    id >= leaves - 1 ? {} : { question: questions[Math.floor(Math.log2(id + 1))], left: 2 * id + 1, right: 2 * id + 2 },
  );
}

function modelOf({ tree, id, mode, feature, value, left, right, weight }) {
  const places = [...id.keys()].filter((node) => weight[node] !== undefined);
  const writer = new BinaryWriter();
  integer(writer, 1, 8); // ir_version
  message(writer, 7, (graph) => {
    message(graph, 1, (node) => {
      text(node, 1, "input");
      text(node, 2, "score");
      text(node, 4, "TreeEnsembleRegressor");
      text(node, 7, "ai.onnx.ml");
      integers(node, "nodes_treeids", tree);
      integers(node, "nodes_nodeids", id);
      integers(node, "nodes_featureids", feature);
      integers(node, "nodes_truenodeids", left);
      integers(node, "nodes_falsenodeids", right);
      floats(node, "nodes_values", value);
      texts(node, "nodes_modes", mode);
      integers(
        node,
        "target_treeids",
        places.map((place) => tree[place]),
      );
      integers(
        node,
        "target_nodeids",
        places.map((place) => id[place]),
      );
      integers(
        node,
        "target_ids",
        places.map(() => 0),
      );
      floats(
        node,
        "target_weights",
        places.map((place) => weight[place]),
      );
      message(node, 5, (attribute) => {
        text(attribute, 1, "n_targets");
        integer(attribute, 3, 1);
        integer(attribute, 20, 2);
      });
    });
    text(graph, 2, "trees");
    rowsOf(graph, 11, "input", features);
    rowsOf(graph, 12, "score", 1);
  });
  message(writer, 8, (opset) => {
    text(opset, 1, "ai.onnx.ml");
    integer(opset, 2, 1);
  });
  message(writer, 8, (opset) => integer(opset, 2, 17));
  return writer.finish();
}

function integers(node, name, values) {
  list(node, { name, type: 7 }, (attribute) => values.forEach((one) => integer(attribute, 8, one)));
}

function floats(node, name, values) {
  list(node, { name, type: 6 }, (attribute) => values.forEach((one) => attribute.tag(7, WireType.Bit32).float(one)));
}

function texts(node, name, values) {
  list(node, { name, type: 8 }, (attribute) => values.forEach((one) => text(attribute, 9, one)));
}

function list(node, { name, type }, write) {
  message(node, 5, (attribute) => {
    text(attribute, 1, name);
    write(attribute);
    integer(attribute, 20, type);
  });
}
