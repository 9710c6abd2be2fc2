"""
A network of your own
=====================

Any connected graph of networkx will do: here the marriages between families of Renaissance Florence. Each family
holds some of the wines.
"""

import matplotlib.pyplot as plt
import networkx as nx
from sklearn.datasets import load_wine

from eigenmesh import DecentralizedPCA, graphs

families = nx.florentine_families_graph()
graph = graphs.from_networkx(families)
pca = DecentralizedPCA(2, topology=graph, scale=True, random_state=0).fit(load_wine().data)
print(f"{pca.n_nodes_} families, {pca.traffic_.rounds} rounds, certified {pca.certificate_.error_bound:.1e}")

nx.draw_networkx(families, nx.kamada_kawai_layout(families), node_color="lightgrey", font_size=7)
plt.axis("off")
plt.show()
