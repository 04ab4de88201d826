import { createServer, type ServerResponse } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { credentials } from "./s3-server.mjs";

/** Hands out the store's credentials over HTTP, as the agents of ECS and EKS, EC2's metadata service and STS do. */
export interface CredentialsService extends AsyncDisposable {
  readonly url: string;
  /** Paths that were asked for, in the order they came. */
  readonly requests: readonly string[];
  /** What is answered in place of credentials; undefined: credentials. */
  fault: { readonly status: number; readonly body?: string } | "hang" | undefined;
  /** How long the credentials hold that are handed out. */
  holdMs: number;
}

export async function credentialsService(): Promise<CredentialsService> {
  const requests: string[] = [];
  const server = createServer((request, answer) => {
    requests.push(`${request.method} ${request.url}`);
    request.resume();
    request.on("end", () => {
      respond(service, request.url ?? "", answer);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const service: CredentialsService = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    fault: undefined,
    holdMs: 3_600_000,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
  return service;
}

function respond({ fault, holdMs }: CredentialsService, path: string, answer: ServerResponse): void {
  if (fault === "hang") {
    return;
  }
  if (fault !== undefined) {
    answer.writeHead(fault.status).end(fault.body ?? "");
    return;
  }
  const expiration = new Date(Date.now() + holdMs).toISOString();
  if (path === "/latest/api/token" || path === "/latest/meta-data/iam/security-credentials/") {
    answer.end("a-text"); // the session's token, the role's name
  } else if (path.startsWith("/sts")) {
    answer.writeHead(200, { "content-type": "text/xml" }).end(stsAnswer(expiration));
  } else {
    answer.end(
      JSON.stringify({
        AccessKeyId: credentials.accessKeyId,
        SecretAccessKey: credentials.secretAccessKey,
        Token: "",
        Expiration: expiration,
      }),
    );
  }
}

// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html
function stsAnswer(expiration: string): string {
  return `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
    <AssumeRoleWithWebIdentityResult><Credentials>
      <AccessKeyId>${credentials.accessKeyId}</AccessKeyId><SecretAccessKey>${credentials.secretAccessKey}</SecretAccessKey>
      <SessionToken></SessionToken><Expiration>${expiration}</Expiration>
    </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`;
}

/** As STS refuses. */
export function stsError(status: number, code: string): { status: number; body: string } {
  return {
    status,
    body: `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>${code}</Code><Message>said no</Message></Error></ErrorResponse>`,
  };
}
