import { describe, expect, test } from "vitest";
import { parseObjectUri, objectUriProblem, objectUriText } from "#src/job/jobfile/uri.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const inS3 = minimalSpec.replace("in/", "s3://lake/in/");

describe("paths in other stores", () => {
  test.each([
    ["gs://lake/in/a.parquet", "gs", "lake", "in/a.parquet"],
    ["gs://example.com_1/dt=1/a b%20é", "gs", "example.com_1", "dt=1/a b%20é"],
    ["az://account1/lake/in/a", "az", "account1/lake", "in/a"],
    ["az://account1.blob.core.chinacloudapi.cn/lake/a", "az", "account1.blob.core.chinacloudapi.cn/lake", "a"],
    ["az://account1/$root/a", "az", "account1/$root", "a"],
  ])("%s is an object of its bucket", (path, scheme, bucket, key) => {
    expect(objectUriProblem(path)).toBeUndefined();
    expect(parseObjectUri(path)).toEqual({ scheme, bucket, key });
    expect(objectUriText(parseObjectUri(path))).toBe(path);
  });

  test.each([
    ["abfss://lake@account1.dfs.core.windows.net/in/a", "az://account1/lake/in/a"],
    ["wasbs://lake@account1.blob.core.windows.net/in/a", "az://account1/lake/in/a"],
    ["abfss://lake@account1.dfs.core.usgovcloudapi.net/a", "az://account1.blob.core.usgovcloudapi.net/lake/a"],
  ])("%s is Hadoop's name of %s", (path, same) => {
    expect(objectUriProblem(path)).toBeUndefined();
    expect(objectUriText(parseObjectUri(path))).toBe(same);
  });

  test.each([
    ["GS://lake/a", "expected gs://bucket/key, in lower case"],
    ["gs://Lake/a", "small letters"],
    ["gs://lake", "after the bucket the name of an object is missing"],
    ["az://account1/lake", "after the container the name of an object is missing"],
    ["az://account1", "expected az://account/container/key"],
    ["az://lake/in/a/*.parquet", "expected az://account/container/key"],
    ["az://account1/la*ke/a", "no wildcards"],
    ["az://account1/lake/../a", "without . or .."],
    [String.raw`az://account1/lake/a\b`, String.raw`without \, which Azure turns into /`],
    ["abfss://account1.dfs.core.windows.net/lake/a", "expected abfss://container@account.dfs.core.windows.net/key"],
    ["az://account1/lake/a?sv=1&sig=abc", "without a signature"],
    ["gs://lake/a?X-Goog-Signature=abc", "without a signature"],
  ])("%s is refused", (path, said) => {
    expect(objectUriProblem(path)).toContain(said);
  });

  test("a path names the container before an @, which is no secret", () => {
    const path = "abfss://LAKE@account1.dfs.core.windows.net/a";
    expect(specRefusal(minimalSpec.replace("in/*.parquet", path))).toContain(`found "${path}"`);
  });

  test.each(["region: eu-central-1", "path_style: true", "request_payer: requester"])("they do not take %s", (line) => {
    for (const store of ["gs://lake/in/", "az://account1/lake/in/"]) {
      const spec = minimalSpec.replace("in/", store).replace("input:", `input:\n  ${line}`);
      expect(specRefusal(spec)).toContain("only a path that starts with s3:// can have this key");
    }
  });

  test("they take endpoint and timeouts; a path on a disk does not", () => {
    const keys = "input:\n  endpoint: http://127.0.0.1:10000/account1\n  timeouts: { silence: 5 }";
    const spec = minimalSpec.replace("input:", keys);
    expect(load(spec.replace("in/", "az://account1/lake/in/")).input).toMatchObject({
      endpoint: "http://127.0.0.1:10000/account1",
      timeouts: { connect: 10, silence: 5, request: 300 },
    });
    expect(specRefusal(spec)).toContain("only a path that starts with s3://, gs:// or az:// can have this key");
  });

  test("the input is in one store, beside a disk", () => {
    const both = minimalSpec.replace("in/*.parquet", "[a.parquet, gs://lake/a, s3://lake/a]");
    expect(specRefusal(both)).toContain(
      'input.path[2]: found "s3://lake/a", expected a path on a disk or in the same store as input.path.1, which starts with gs://',
    );
  });
});

describe("paths in S3", () => {
  test.each(["s3://lake/a.parquet", "s3://lake/dt=1/a b%20é.parquet", "s3://my.bucket-1/x//y", "s3://lake/a?b#c"])(
    "%s is an object of its bucket, and nothing in it is escaped",
    (path) => {
      expect(objectUriProblem(path)).toBeUndefined();
      expect(objectUriText(parseObjectUri(path))).toBe(path);
    },
  );

  test.each([
    ["S3://lake/a", "in lower case"],
    ["s3:/lake/a", "in lower case"],
    ["s3://", "bucket's name"],
    ["s3:///a", "bucket's name"],
    ["s3://la*ke/a", "no wildcards"],
    ["s3://key:secret@lake/a", "bucket's name"],
    ["s3://lake", "is missing"],
    ["s3://lake/", "is missing"],
    ["s3://lake/../a", "without . or .."],
    ["s3://lake/a/./b", "without . or .."],
    [`s3://lake/${"é".repeat(513)}`, "1024 bytes"],
  ])("%s is refused", (path, said) => {
    expect(objectUriProblem(path)).toContain(said);
  });

  test("paths in S3 are refused with the place in the spec where they are wrong", () => {
    expect(specRefusal(minimalSpec.replace("in/*.parquet", "[a.parquet, s3://lake]"))).toMatchInlineSnapshot(`
      "64 SPEC_INVALID
      reading job.yaml:4:21: input.path[1]: found "s3://lake", expected s3://bucket/key: after the bucket the name of an object is missing"
    `);
  });

  test("paths in S3 take the endpoint, the region and other settings of the store", () => {
    const text = inS3.replace(
      "input:",
      "input:\n  endpoint: http://minio:9000\n  region: eu-central-1\n  path_style: false\n  request_payer: requester\n  spool: { path: tmp, max_mb: 64 }\n  timeouts: { silence: 5 }",
    );
    expect(load(text).input).toMatchObject({
      endpoint: "http://minio:9000",
      region: "eu-central-1",
      path_style: false,
      request_payer: "requester",
      spool: { path: "tmp", max_mb: 64 },
      timeouts: { connect: 10, silence: 5, request: 300 },
    });
  });

  test.each(["region: eu-central-1", "path_style: true", "request_payer: requester"])(
    "only paths in S3 take %s",
    (line) => {
      expect(specRefusal(minimalSpec.replace("input:", `input:\n  ${line}`))).toContain(
        `input.${line.split(":")[0]}: found ${JSON.stringify(line.slice(line.indexOf(" ") + 1)).replace('"true"', "true")}, only a path that starts with s3:// can have this key`,
      );
    },
  );

  test.each(["minio:9000", "ftp://minio", "http://user:secret@minio", "http://minio?x=1"])(
    "a path in S3 is refused at %s",
    (endpoint) => {
      const said = specRefusal(inS3.replace("input:", `input:\n  endpoint: ${endpoint}`));
      expect(said).toContain("expected a URL such as http://minio:9000, without user and password");
      expect(said).not.toContain("secret");
    },
  );
});

const outputKeys = (keys: string): string =>
  minimalSpec.replace(/( *)path: out/, (_, indent: string) => `${indent}path: s3://lake/out\n${indent}${keys}`);

describe("an output in S3", () => {
  test("an output in S3 takes how it is to be encrypted", () => {
    const text = outputKeys("sse: { algorithm: aws:kms, kms_key: abc, bucket_key: true }");
    expect(load(text).output.parquet).toMatchObject({
      path: "s3://lake/out",
      sse: { algorithm: "aws:kms", kms_key: "abc", bucket_key: true },
    });
  });

  test.each([
    ["S3://lake/out", "in lower case"],
    ["s3://lake", "is missing"],
    ["s3://lake//out", "without empty names"],
    ["s3://lake/out//", "without empty names"],
    ["s3://lake/a/../b", "without . or .."],
    [`s3://lake/${"e".repeat(701)}`, "at most 700 bytes"],
  ])("%s is refused", (path, said) => {
    expect(specRefusal(minimalSpec.replace("path: out", `path: ${path}`))).toContain(said);
  });

  test("an output in S3 may end with a slash", () => {
    expect(load(minimalSpec.replace("path: out", "path: s3://lake/out/")).output.parquet?.path).toBe("s3://lake/out/");
  });

  test("an output refuses a KMS key with another encryption, and keys of S3 for a folder on a disk", () => {
    expect(specRefusal(outputKeys("sse: { algorithm: AES256, kms_key: abc }"))).toContain("go with algorithm: aws:kms");
    expect(specRefusal(outputKeys("region: x").replace("s3://lake/out", "out"))).toContain(
      "only a path that starts with s3:// can have this key",
    );
  });
});

describe("a store that is not supported", () => {
  test.each([
    ["s3a://lake/x", "write s3:// in its place"],
    ["S3N://lake/x", "write s3:// in its place"],
    ["gcs://lake/x", "write gs:// in its place"],
    ["abfs://c@a.dfs.core.windows.net/x", "write az://account/container/path, or abfss://"],
    ["hdfs://n/x", "this file system is not supported; copy the files"],
    ["file:///lake/x", "expected a path without file://"],
  ])("%s is refused at each key that names a place, with what to do", (uri, said) => {
    const { input, ready, model, output } = {
      input: minimalSpec.replace("in/*.parquet", uri),
      ready: minimalSpec.replace("in/*.parquet", `in/*.parquet\n  ready: ${uri}`),
      model: minimalSpec.replace("model.onnx", uri),
      output: minimalSpec.replace("path: out", `path: ${uri}`),
    };
    for (const [spec, key] of [
      [input, "input.path"],
      [ready, "input.ready"],
      [model, "model.path"],
      [output, "output.parquet.path"],
    ] as const) {
      const text = specRefusal(spec);
      expect(text).toMatch(/^64 /);
      expect(text).toContain(`: ${key}: `);
      expect(text).toContain(said);
      expect(text.split("\n")).toHaveLength(2);
    }
  });
});
