import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createSigner, scopeOfHost } from "#src/stores/objects/aws-credentials.js";

const limits = { searchMs: 1000, signal: new AbortController().signal };

beforeEach(() => {
  vi.stubEnv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
  vi.stubEnv("AWS_SESSION_TOKEN", "a+token/");
});
afterEach(() => {
  vi.unstubAllEnvs();
});

test("a request is signed as botocore signs it: path, query, body in pieces, session token", async () => {
  const headers = await createSigner(limits, () => Date.UTC(2026, 10, 25, 3, 15))(
    {
      method: "POST",
      url: new URL(
        "https://runtime.sagemaker.eu-west-1.amazonaws.com/endpoints/churn%20model/invocations?b=2&a=x%20y&a=1",
      ),
      headers: {
        "content-type": "application/json",
        "content-length": "19",
        "x-amzn-sagemaker-target-variant": "a  b",
      },
      body: [Buffer.from('{"instances":'), Buffer.from("[[1]]}")],
    },
    { region: "eu-west-1", service: "sagemaker" },
  );

  // What test/support/botocore_signature.py prints for this request, with botocore 1.44.8.
  expect(headers).toEqual({
    "content-type": "application/json",
    "content-length": "19",
    "x-amzn-sagemaker-target-variant": "a  b",
    "x-amz-content-sha256": "d669ad121e189dc2588d30956ef0b34ed69eef0be11b8e24e21b8ed1d1d87593",
    "x-amz-date": "20261125T031500Z",
    "x-amz-security-token": "a+token/",
    authorization:
      "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261125/eu-west-1/sagemaker/aws4_request, SignedHeaders=content-length;content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token;x-amzn-sagemaker-target-variant, Signature=8b7dd24a81bceaaeed917ddd6ff1bec22a6cf1b0b15e42f95e7913eb20d9203b",
  });
});

test.each([
  ["runtime.sagemaker.eu-west-1.amazonaws.com", { region: "eu-west-1", service: "sagemaker" }],
  ["runtime.sagemaker.cn-north-1.amazonaws.com.cn", { region: "cn-north-1", service: "sagemaker" }],
  ["vpce-0a1-b2.runtime.sagemaker.us-gov-west-1.vpce.amazonaws.com", { region: "us-gov-west-1", service: "sagemaker" }],
  ["abc123.execute-api.us-east-1.amazonaws.com", { region: "us-east-1", service: "execute-api" }],
  ["abc123.lambda-url.us-east-1.on.aws", { region: "us-east-1", service: "lambda" }],
  ["glue.eu-central-1.amazonaws.com", { region: "eu-central-1", service: "glue" }],
  ["s3tables.us-east-2.amazonaws.com", { region: "us-east-2", service: "s3tables" }],
  ["churn.example.com", undefined],
  ["sagemaker.eu-west-1.amazonaws.com.example.com", undefined],
])("the host %s tells region and service of a signature: %j", (host, scope) => {
  expect(scopeOfHost(host)).toEqual(scope);
});
