/** The ways in which the gateway proves at a token endpoint that it is the client. */
export const CLIENT_AUTH_METHODS = ['client_secret_basic', 'client_secret_post', 'private_key_jwt'] as const;
export type ClientAuthMethod = (typeof CLIENT_AUTH_METHODS)[number];

/** The curves of ES256, ES384 and ES512: the names of OpenSSL, and those of Web Crypto. */
export const SIGNING_CURVES: ReadonlyMap<string, string> = new Map([
  ['prime256v1', 'P-256'],
  ['secp384r1', 'P-384'],
  ['secp521r1', 'P-521'],
]);

/** The kinds of credentials of an upstream. `static`: its `headers`, and nothing else. */
export const CREDENTIAL_KINDS = ['static', 'clientCredentials', 'exchange', 'identity'] as const;

/** The credentials that the gateway gets for requests to an upstream. */
export type UpstreamAuth = TokenAuth | IdentityAuth;

/** Credentials that a token endpoint gives out: to the gateway, or for the calling user (RFC 8693). */
export interface TokenAuth {
  readonly kind: 'clientCredentials' | 'exchange';
  /** The issuer, whose metadata name the token endpoint; undefined if `tokenUrl` is configured. */
  readonly issuer?: string | undefined;
  readonly tokenUrl?: string | undefined;
  readonly clientId: string;
  readonly method: ClientAuthMethod;
  readonly clientSecret?: string | undefined;
  /** PEM, PKCS #8. */
  readonly privateKey?: string | undefined;
  /** Id of the private key at the issuer. */
  readonly keyId?: string | undefined;
  readonly scopes: readonly string[];
  /** Scopes that are asked for besides, once the upstream refuses a request because they are missing. */
  readonly stepUpScopes: readonly string[];
  /** The resource that the token is for (RFC 8707); undefined if none is named. */
  readonly resource?: string | undefined;
  /** Further parameters of the token request. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** A short-lived token that the gateway signs. It says who calls. */
export interface IdentityAuth {
  readonly kind: 'identity';
  /** `aud` of the token. */
  readonly audience: string;
  readonly lifetimeMs: number;
}

/** Returns the account of the gateway at an upstream, without secrets. */
export function accountText(auth: UpstreamAuth): string {
  return auth.kind === 'identity' ? auth.kind : `${auth.kind} ${auth.clientId} ${auth.issuer ?? auth.tokenUrl ?? ''}`;
}

/** Connections of the gateway to upstreams and issuers. */
export interface EgressConfig {
  /** URL of an HTTP proxy; undefined for direct connections. It may have a user name and password. */
  readonly proxy?: string | undefined;
  /** Hosts that are connected to directly: a name, `.suffix`, address, network, or any of these with a port. */
  readonly noProxy: readonly string[];
  /** Networks in CIDR notation. URLs that others name may lead there, although they are not public. */
  readonly privateNetworks: readonly string[];
  /** Certificates for all its connections; undefined for those of the system. */
  readonly tls?: ClientTls | undefined;
}

/** The certificates of connections to a server, in PEM. */
export interface ClientTls {
  /** The authorities that sign the certificate of the server; undefined for those of the system. */
  readonly ca?: string | undefined;
  /** Certificate and private key of the gateway as a client. */
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** The default {@link EgressConfig}. */
export const DIRECT_EGRESS: EgressConfig = { noProxy: [], privateNetworks: [] };
