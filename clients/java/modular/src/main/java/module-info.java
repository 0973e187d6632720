/** A program that is a module, and uses the client as one. */
module io.github.haul.modular {
    requires io.github.haul.client;
}
