import type { NodeMode, TreeNodes } from "./ensemble.js";

/**
 * Sets as one node: exporters write "is one of" as nodes of mode EQ, each the false child of the one before, that share
 * their true child. The nodes that were merged are reached no more, and become leaves.
 */
export function mergeSets(nodes: TreeNodes): TreeNodes {
  const modes: NodeMode[] = [...nodes.modes];
  const falseChildren = nodes.falseChildren.slice();
  const members = new Map(nodes.members);
  const follows = (node: number, next: number): boolean =>
    modes[next] === "EQ" &&
    nodes.features[next] === nodes.features[node] &&
    nodes.trueChildren[next] === nodes.trueChildren[node] &&
    nodes.missingTrue[next] === nodes.missingTrue[node];
  for (const node of modes.keys()) {
    const found: number[] = [];
    while (modes[node] === "EQ" && follows(node, falseChildren[node] ?? 0)) {
      const next = falseChildren[node] ?? 0;
      found.push(nodes.thresholds[next] ?? Number.NaN);
      modes[next] = "LEAF";
      falseChildren[node] = falseChildren[next] ?? 0;
    }
    if (found.length > 0) {
      members.set(node, Float64Array.of(nodes.thresholds[node] ?? Number.NaN, ...found));
      modes[node] = "MEMBER";
    }
  }
  return { ...nodes, modes, falseChildren, members };
}
