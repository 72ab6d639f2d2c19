// Makes the keys that the replicas of docker-compose.yml share, in the directory of the first argument. Keeps those that are there.
import { createHash, randomBytes } from 'node:crypto';
import { renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [directory = '.'] = process.argv.slice(2);

/** Writes a secret as a whole, if there is none. @param show runs before it counts. */
function keep(name, text, show = () => undefined) {
  const file = join(directory, name);
  // An empty one was left by a full disk.
  if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > 0) return;
  const draft = `${file}.new`;
  rmSync(draft, { force: true });
  writeFileSync(draft, text, { mode: 0o400 });
  show();
  renameSync(draft, file);
}

keep('wrapping-key', randomBytes(32).toString('base64'));
const key = `lsk_${randomBytes(32).toString('base64url')}`;
keep('api-key.sha256', createHash('sha256').update(key).digest('hex'), () => {
  process.stdout.write(`API key, shown only once: ${key}\n`);
});
