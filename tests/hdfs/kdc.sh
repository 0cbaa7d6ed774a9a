#!/bin/sh
# kdc.sh FOLDER PORT: a KDC of MIT Kerberos for the realm TEST, in the foreground.
# FOLDER gets krb5.conf, the keytab of the servers and, once the KDC answers, a ticket.
set -e
cd "$1"
PATH=$PATH:/usr/sbin
export KRB5_CONFIG="$1/krb5.conf" KRB5_KDC_PROFILE="$1/kdc.conf"
cat > krb5.conf <<END
[libdefaults]
 default_realm = TEST
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 TEST = {
  kdc = 127.0.0.1:$2
 }
END
cat > kdc.conf <<END
[kdcdefaults]
 kdc_ports = ""
 kdc_tcp_listen = 127.0.0.1:$2
[realms]
 TEST = {
  database_name = $1/principal
  key_stash_file = $1/stash
 }
END
kdb5_util create -s -P master -r TEST
for name in hdfs/localhost trainer; do
    kadmin.local -q "addprinc -randkey $name"
    kadmin.local -q "ktadd -k keytab $name"
done
(
    until kinit -k -t keytab -c new trainer; do sleep 0.1; done
    mv new ticket
) &
exec krb5kdc -n
