package io.github.haul.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.junit.jupiter.api.Tag;

/** Status and listings of files and directories. */
@Tag("one-jdk")
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
