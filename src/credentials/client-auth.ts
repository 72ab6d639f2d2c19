import { createPrivateKey, type KeyObject, type webcrypto } from 'node:crypto';
import type { ClientAuth } from 'oauth4webapi';
import { SIGNING_CURVES, type TokenAuth } from '../config/values/credentials.ts';
import { clientBasic } from '../egress/client-basic.ts';

/** Returns a private key for signing: RS256, the ES algorithm of its curve, or Ed25519. */
function signingKey(key: KeyObject): webcrypto.CryptoKey {
  const { asymmetricKeyType: type } = key;
  if (type === 'rsa') return key.toCryptoKey({ name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }, false, ['sign']);
  if (type !== 'ec') return key.toCryptoKey({ name: 'Ed25519' }, false, ['sign']);
  const namedCurve = SIGNING_CURVES.get(key.asymmetricKeyDetails?.namedCurve ?? '') ?? 'unknown';
  return key.toCryptoKey({ name: 'ECDSA', namedCurve }, false, ['sign']);
}

/** Returns how the gateway authenticates at a token endpoint. @throws {Error} if the private key cannot be used. */
export async function clientAuthOf(auth: TokenAuth): Promise<ClientAuth> {
  // Loaded only here, since most gateways need none of it.
  const oauth = await import('oauth4webapi');
  const { method, clientSecret = '', privateKey = '', keyId } = auth;
  switch (method) {
    case 'client_secret_basic':
      return clientBasic(clientSecret);
    case 'client_secret_post':
      return oauth.ClientSecretPost(clientSecret);
    case 'private_key_jwt': {
      const key = signingKey(createPrivateKey(privateKey));
      return oauth.PrivateKeyJwt(keyId === undefined ? key : { key, kid: keyId });
    }
  }
}
