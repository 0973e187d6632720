/** A client of haul servers. */
module io.github.haul.client {
    requires static transitive org.jspecify;
    requires com.google.protobuf;
    // The JVM's own options, which say how much direct memory there is.
    requires java.management;
    // O_DIRECT, to read back from a disk.
    requires jdk.unsupported;

    exports io.github.haul.client;
    // protobuf-java looks at the generated messages by reflection.
    exports io.github.haul.client.internal.proto to
            com.google.protobuf;
}
