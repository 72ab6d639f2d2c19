import { LocalOwners } from '../../../src/gateway/exchange/owners.ts';
import type { Front } from '../../../src/gateway/front/front.ts';
import { JoinedProcesses } from '../../support/joined-processes.ts';
import { joinedOwnersContract, ownersContract } from './owners.contract.ts';

ownersContract('one process', () => new LocalOwners());
ownersContract('joined processes', () => new JoinedProcesses().join());
joinedOwnersContract('joined processes', () => {
  const processes = new JoinedProcesses();
  return () => {
    const joined = processes.join();
    return {
      owners: joined,
      serve: (owner) => {
        const front = {
          handleModernRequest: (...[request, caller, sink]: Parameters<Front['handleModernRequest']>) =>
            owner.handleModernRequest(request, caller, sink, () => undefined),
        };
        joined.serve(front, (...args) => owner.forward(...args));
      },
      leave: () => joined.leave(),
    };
  };
});
