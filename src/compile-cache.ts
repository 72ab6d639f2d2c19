import { enableCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

/** A directory beside the program. Users who can write to it can write to the program as well. */
const DIRECTORY = fileURLToPath(new URL('../node_modules/.cache/linkspan', import.meta.url));

/**
 * Makes Node keep the compiled code of modules that are loaded after this call, which halves the time of the next start.
 * Has no effect if the directory cannot be written, or NODE_DISABLE_COMPILE_CACHE is set.
 */
export function keepCompiledCode(): void {
  enableCompileCache(DIRECTORY);
}
