import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { credentials } from "./s3-server.mjs";

/** What hands out the S3 server's keys for a token, as a cloud's services do; without a session's, which it refuses. */
export interface IdentityService extends AsyncDisposable {
  /** What a cloud's machinery puts into the environment of a pod with a service account. */
  readonly env: Readonly<Record<string, string>>;
  /** How often keys were handed out. */
  asked(): number;
}

/** `answer`: the keys, or undefined for what has no right to them. */
async function serve(
  answer: (request: IncomingMessage) => Promise<string | undefined>,
  env: (endpoint: string) => IdentityService["env"],
): Promise<IdentityService> {
  let asked = 0;
  const server = createServer((request, response) => {
    void (async () => {
      const keys = await answer(request);
      asked += keys === undefined ? 0 : 1;
      response.writeHead(keys === undefined ? 403 : 200).end(keys);
    })();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    env: env(`http://127.0.0.1:${port}`),
    asked: () => asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

const { accessKeyId, secretAccessKey } = credentials;
const expiration = (): string => new Date(Date.now() + 3_600_000).toISOString();

/** AWS's STS, which takes the token of a service account for a role (IRSA, and web identity elsewhere). */
export async function securityTokenService(role: string, token: string): Promise<IdentityService> {
  return await serve(
    async (request) => {
      const given = new URLSearchParams(await text(request));
      return given.get("RoleArn") === role && given.get("WebIdentityToken") === token
        ? `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
            <AssumeRoleWithWebIdentityResult>
              <Credentials>
                <AccessKeyId>${accessKeyId}</AccessKeyId>
                <SecretAccessKey>${secretAccessKey}</SecretAccessKey>
                <SessionToken></SessionToken>
                <Expiration>${expiration()}</Expiration>
              </Credentials>
            </AssumeRoleWithWebIdentityResult>
          </AssumeRoleWithWebIdentityResponse>`
        : undefined;
    },
    (endpoint) => ({ AWS_ENDPOINT_URL_STS: endpoint }),
  );
}

/** The agent of EKS Pod Identity on a pod's machine. */
export async function podIdentityAgent(token: string, tokenFile: string): Promise<IdentityService> {
  const keys = { AccessKeyId: accessKeyId, SecretAccessKey: secretAccessKey, Token: "" };
  return await serve(
    ({ url, headers }) =>
      Promise.resolve(
        url === "/v1/credentials" && headers.authorization === token
          ? JSON.stringify({ ...keys, Expiration: expiration() })
          : undefined,
      ),
    (endpoint) => ({
      AWS_CONTAINER_CREDENTIALS_FULL_URI: `${endpoint}/v1/credentials`,
      AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: tokenFile,
    }),
  );
}
