import { MemorySessionStore } from '../../../src/store/memory/session-store.ts';
import { sessionStoreContract } from '../session-store.contract.ts';

sessionStoreContract('memory', async () => new MemorySessionStore(() => undefined));
