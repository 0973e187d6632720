package io.github.haul.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Listings of the root directory. */
class ContractRootDirectoryTest extends AbstractContractRootDirectoryTest {
    @Override
    protected Configuration createConfiguration() {
        return HaulContract.served(super.createConfiguration());
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new HaulContract(conf);
    }
}
