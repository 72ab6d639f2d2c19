/** The stdio fixture. First starts a process in a session of its own, and appends its id to the given file. */
import { spawn } from 'node:child_process';
import { appendFileSync } from 'node:fs';

const [, , file = ''] = process.argv;
// Ends by itself if nothing else ends it.
const orphan = spawn('sleep', ['120'], { detached: true, stdio: 'ignore' });
orphan.unref();
appendFileSync(file, `${orphan.pid}\n`);
await import('../upstream-stdio.ts');
