package io.github.haul.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.MethodSource;

/** Many ranges of a file at once. */
@ParameterizedClass(name = "buffer-{0}")
@MethodSource("params")
class ContractVectoredReadTest extends AbstractContractVectoredReadTest {
    ContractVectoredReadTest(String bufferType) {
        super(bufferType);
    }

    @Override
    protected Configuration createConfiguration() {
        return HaulContract.served(super.createConfiguration());
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new HaulContract(conf);
    }
}
