# SPDX-License-Identifier: Apache-2.0
# What the Python package holds beside its Python files. The libraries are found through the torch that has been imported before
# them, so they need no path to it; and no links, which a wheel cannot hold.
set_target_properties(hkt_operators PROPERTIES VERSION 0)
set_target_properties(hkt_operators hkt_loader PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib")
install(TARGETS hkt_operators LIBRARY DESTINATION hkt NAMELINK_SKIP)
install(TARGETS hkt_loader DESTINATION hkt)
