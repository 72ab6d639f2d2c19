import { enableCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

/** Beside the program: a person who may write it may write the program as well. */
const DIRECTORY = fileURLToPath(new URL('../node_modules/.cache/linkspan', import.meta.url));

/**
 * Makes Node keep the compiled code of the modules that are loaded from here on, which halves the time of the next start.
 * Does nothing where the directory cannot be written, or where NODE_DISABLE_COMPILE_CACHE is set.
 */
export function keepCompiledCode(): void {
  enableCompileCache(DIRECTORY);
}
