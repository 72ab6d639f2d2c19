// Makes the keys that the replicas of docker-compose.yml share, in the directory of the first argument. Keeps those that are there.
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [directory = '.'] = process.argv.slice(2);

/** Writes a secret. Returns whether there was none. */
function keep(name, text) {
  const file = join(directory, name);
  if (existsSync(file)) return false;
  writeFileSync(file, text, { mode: 0o400, flag: 'wx' });
  return true;
}

keep('wrapping-key', randomBytes(32).toString('base64'));
const key = `lsk_${randomBytes(32).toString('base64url')}`;
if (keep('api-key.sha256', createHash('sha256').update(key).digest('hex'))) {
  process.stdout.write(`API key, shown only once: ${key}\n`);
}
