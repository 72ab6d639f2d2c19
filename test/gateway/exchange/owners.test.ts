import { LocalOwners } from '../../../src/gateway/exchange/owners.ts';
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
      serve: (owner) => joined.serve(owner, (incoming, outgoing) => owner.forward(incoming, outgoing)),
      leave: () => joined.leave(),
    };
  };
});
