import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse, parseAllDocuments } from "yaml";
import { z } from "zod";

/** What the files of deploy/kubernetes say; a key that is not known here is refused, not ignored. */
const kustomization = z.strictObject({
  apiVersion: z.literal("kustomize.config.k8s.io/v1beta1"),
  kind: z.literal("Kustomization"),
  resources: z.array(z.string()),
  configMapGenerator: z
    .array(z.strictObject({ name: z.string(), behavior: z.literal("merge").optional(), files: z.array(z.string()) }))
    .default([]),
  images: z.array(z.strictObject({ name: z.string(), newTag: z.string() })).default([]),
  patches: z.array(z.strictObject({ path: z.string() })).default([]),
});

export interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly [key: string]: unknown;
}

/**
 * What `kubectl kustomize` makes of a folder, without the digest that it puts behind the names of ConfigMaps: so much
 * of it as our folders use. A test compares the two where kubectl is there.
 */
export function kustomized(folder: string): Manifest[] {
  const { resources, configMapGenerator, images, patches } = kustomization.parse(
    parse(readFileSync(join(folder, "kustomization.yaml"), "utf8")),
  );
  const given = resources.flatMap((path) =>
    path.endsWith(".yaml") ? manifestsOf(join(folder, path)) : kustomized(join(folder, path)),
  );
  const merged = patches.flatMap(({ path }) => manifestsOf(join(folder, path)));
  const maps = configMapGenerator.map(({ name, files }) => ({
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name },
    data: Object.fromEntries(files.map((file) => [file, readFileSync(join(folder, file), "utf8")])),
  }));
  const patched = given.map((manifest) =>
    [...merged, ...maps].filter((patch) => isSame(patch, manifest)).reduce(mergeInto, manifest),
  );
  const added = maps.filter((map) => !given.some((manifest) => isSame(map, manifest)));
  const text = images.reduce(
    (json, { name, newTag }) =>
      json.replaceAll(new RegExp(`"image":"${name}:[^"]*"`, "g"), `"image":"${name}:${newTag}"`),
    JSON.stringify([...patched, ...added]),
  );
  return JSON.parse(text) as Manifest[];
}

function manifestsOf(path: string): Manifest[] {
  return parseAllDocuments(readFileSync(path, "utf8")).map((document) => document.toJS() as Manifest);
}

function isSame(one: Manifest, other: Manifest): boolean {
  return one.kind === other.kind && one.metadata.name === other.metadata.name;
}

/** A strategic merge: lists of things with names are merged by name (those of the patch come first), other lists are replaced, null takes away. */
function mergeInto<T>(value: T, patch: unknown): T {
  if (Array.isArray(value) && Array.isArray(patch) && [...value, ...patch].every(hasName)) {
    const merged = patch.map((item) => mergeInto(value.find(({ name }) => name === item.name) ?? item, item));
    const others = value.filter((item) => !patch.some(({ name }) => name === item.name));
    return [...merged, ...others] as T;
  }
  if (isRecord(value) && isRecord(patch)) {
    const merged = Object.entries(patch).map(([key, change]) => [
      key,
      key in value ? mergeInto(value[key], change) : change,
    ]);
    const all = { ...value, ...Object.fromEntries(merged) };
    return Object.fromEntries(Object.entries(all).filter(([, item]) => item !== null)) as T;
  }
  return patch as T;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function hasName(value: unknown): value is { name: string } {
  return isRecord(value) && typeof value["name"] === "string";
}
