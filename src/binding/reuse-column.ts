/** What `reuse` adds to each row: a hash of its features, the model, its key and its predictions. */
export const reuseColumn = { name: "reuse_hash", type: "uuid" } as const;
