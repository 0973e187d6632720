package io.github.haul.client.internal.net;

import java.net.Socket;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509ExtendedTrustManager;

/** TLS 1.3 with the one server whose certificate a token names (SPEC.md, 3). */
final class PinnedTls {
    static final String VERSION = "TLSv1.3";
    private static final int FINGERPRINT_BYTES = 16;

    private PinnedTls() {}

    /** Makes sockets that talk to the server of this fingerprint only. */
    static SSLSocketFactory socketsFor(byte[] fingerprint) {
        try {
            SSLContext context = SSLContext.getInstance(VERSION);
            context.init(null, new TrustManager[] {new Pin(fingerprint)}, new SecureRandom());
            return context.getSocketFactory();
        } catch (GeneralSecurityException missing) {
            throw new IllegalStateException("every JDK from 11 on has TLS 1.3", missing);
        }
    }

    /**
     * Believes the fingerprint of the certificate and nothing else of it: no name, date or issuer.
     * That the server has the certificate's key is seen by TLS itself.
     */
    private static final class Pin extends X509ExtendedTrustManager {
        private final byte[] fingerprint;

        Pin(byte[] fingerprint) {
            this.fingerprint = fingerprint.clone();
        }

        private void check(X509Certificate[] chain) throws CertificateException {
            try {
                byte[] hash = MessageDigest.getInstance("SHA-256").digest(chain[0].getEncoded());
                if (!MessageDigest.isEqual(Arrays.copyOf(hash, FINGERPRINT_BYTES), fingerprint)) {
                    throw new CertificateException("the server's key is not the one in the token");
                }
            } catch (GeneralSecurityException unreadable) {
                throw unreadable instanceof CertificateException told
                        ? told
                        : new CertificateException(unreadable);
            }
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String type)
                throws CertificateException {
            check(chain);
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, Socket socket)
                throws CertificateException {
            throw new CertificateException("a client trusts no client");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine engine)
                throws CertificateException {
            throw new CertificateException("a client trusts no client");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String type)
                throws CertificateException {
            throw new CertificateException("a client trusts no client");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return new X509Certificate[0];
        }
    }
}
