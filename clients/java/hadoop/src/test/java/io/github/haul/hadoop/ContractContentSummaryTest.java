package io.github.haul.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** Sums over trees. */
class ContractContentSummaryTest extends AbstractContractContentSummaryTest {
    @Override
    protected Configuration createConfiguration() {
        return HaulContract.served(super.createConfiguration());
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new HaulContract(conf);
    }
}
