import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A self-signed certificate for 127.0.0.1 and a name, and its key, as PEM files in a folder that disposing removes. */
export interface Certificate extends AsyncDisposable {
  readonly certFile: string;
  readonly keyFile: string;
  readonly cert: string;
  readonly key: string;
}

/** Makes a certificate with openssl. @param name host name or address besides 127.0.0.1. */
export async function makeCertificate(name = 'localhost'): Promise<Certificate> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-certificate-'));
  const [certFile, keyFile] = [join(dir, 'cert.pem'), join(dir, 'key.pem')];
  const subject = [
    '-subj',
    `/CN=${name}`,
    '-addext',
    `subjectAltName=IP:127.0.0.1,${isIP(name) === 0 ? 'DNS' : 'IP'}:${name}`,
    '-days',
    '1',
    '-nodes',
  ];
  await run('openssl', ['req', '-x509', '-newkey', 'rsa:2048', ...subject, '-keyout', keyFile, '-out', certFile]);
  return {
    certFile,
    keyFile,
    cert: await readFile(certFile, 'utf8'),
    key: await readFile(keyFile, 'utf8'),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }),
  };
}
