import { messageOf } from '../../thrown.ts';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { z } from 'zod';
import { text } from './scalars.ts';

const FROM_FILE = (name: string) => `expected the text of a PEM file; write "\${file:${name}}"`;

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

const certificates = (name: string) =>
  text(FROM_FILE(name)).refine((pem) => pem.includes('-----BEGIN CERTIFICATE-----'), {
    error: FROM_FILE(name),
    abort: true,
  });

const privateKey = () =>
  text(FROM_FILE('key.pem')).refine((pem) => /-----BEGIN (?:\w+ )?PRIVATE KEY-----/.test(pem), {
    error: FROM_FILE('key.pem'),
    abort: true,
  });

/**
 * Returns what is wrong with a certificate and its key, or undefined.
 *
 * @param cert PEM: the certificate, and those of its issuers after it.
 * @param key PEM, not encrypted.
 */
function pairFault(cert: string, key: string): string | undefined {
  try {
    const isPair = new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
    if (!isPair) return 'the key does not belong to the certificate';
    // It reads all certificates, and refuses weak keys.
    createSecureContext({ cert, key });
    return undefined;
  } catch (thrown) {
    const why = messageOf(thrown);
    return `the certificate or its key cannot be read; an encrypted key is not supported (${why})`;
  }
}

/** Returns what is wrong with the certificates of authorities, or undefined. @param ca PEM. */
function authorityFault(ca: string): string | undefined {
  try {
    for (const [certificate] of ca.matchAll(CERTIFICATE)) void new X509Certificate(certificate);
    return undefined;
  } catch (thrown) {
    return `the certificates cannot be read (${messageOf(thrown)})`;
  }
}

/** Schema of the certificate of the gateway, for clients. */
export const serverTls = z
  .strictObject({
    cert: certificates('cert.pem').describe('Certificate in PEM, then those of its issuers: "${file:cert.pem}".'),
    key: privateKey().describe('Its private key in PEM, not encrypted: "${file:key.pem}".'),
  })
  .superRefine(({ cert, key }, context) => {
    const fault = pairFault(cert, key);
    if (fault !== undefined) context.addIssue({ code: 'custom', path: ['key'], message: fault });
  });

/** Schema of the certificates for connections to a server. */
export const clientTls = z
  .strictObject(
    {
      ca: certificates('ca.pem')
        .optional()
        .describe(
          'Certificates in PEM that sign the one of the server: "${file:ca.pem}". Default: those of the system.',
        ),
      cert: certificates('cert.pem')
        .optional()
        .describe('Client certificate in PEM, for a server that asks for one: "${file:cert.pem}".'),
      key: privateKey().optional().describe('Its private key in PEM, not encrypted: "${file:key.pem}".'),
    },
    { error: 'expected a map such as {ca: "${file:ca.pem}"}' },
  )
  .superRefine(({ ca, cert, key }, context) => {
    if ((cert === undefined) !== (key === undefined)) {
      context.addIssue({ code: 'custom', path: [], message: 'a client certificate needs "cert" and "key"' });
      return;
    }
    const caFault = ca === undefined ? undefined : authorityFault(ca);
    if (caFault !== undefined) context.addIssue({ code: 'custom', path: ['ca'], message: caFault });
    const fault = cert === undefined || key === undefined ? undefined : pairFault(cert, key);
    if (fault !== undefined) context.addIssue({ code: 'custom', path: ['key'], message: fault });
  });
