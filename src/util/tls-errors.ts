const certificateErrors = /^(ERR_TLS_|CERT_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT|UNABLE_TO_)/;
const protocolErrors = /^(ERR_SSL_|EPROTO$)/;

/** Whether a system error says that the certificate of a server is not trusted. */
export function isCertificateError(errno: string): boolean {
  return certificateErrors.test(errno);
}

/** Whether a system error means that TLS failed with a server, for example because it serves plain HTTP. */
export function isTlsProtocolError(errno: string): boolean {
  return protocolErrors.test(errno);
}
