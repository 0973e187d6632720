package io.github.haul.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Status and listings of files and directories. */
class ContractGetFileStatusTest extends AbstractContractGetFileStatusTest {
    @Override
    protected Configuration createConfiguration() {
        return HaulContract.served(super.createConfiguration());
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new HaulContract(conf);
    }
}
